package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

// fixture is a running store, and its files.
type fixture struct {
	*store.Store
	t    *testing.T
	root string
	stop func()
}

func open(t *testing.T, root string) *fixture {
	t.Helper()
	s, err := store.Open(store.Config{Root: root, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	f := &fixture{Store: s, t: t, root: root}
	stopped := false
	f.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(f.stop)
	return f
}

func (f *fixture) path(path string) string { return filepath.Join(f.root, filepath.FromSlash(path)) }

// write writes a file, as an editor does.
func (f *fixture) write(path, text string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path(path)), 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.path(path), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) read(path string) string {
	f.t.Helper()
	text, err := os.ReadFile(f.path(path))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

// put writes a key through the store, as kube-apiserver does.
func (f *fixture) put(key, value string) int64 {
	f.t.Helper()
	rev, _, err := f.Commit([]string{key}, func(func(string) *store.Entry) *store.Change {
		return &store.Change{Key: key, Value: []byte(value)}
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return rev
}

func (f *fixture) get(key string) *store.Entry {
	f.t.Helper()
	found, err := f.Range(store.Query{Key: key})
	if err != nil {
		f.t.Fatal(err)
	}
	if len(found.Entries) == 0 {
		return nil
	}
	return found.Entries[0]
}

// timeout is long, because the machine may be busy.
const timeout = 3 * time.Minute

// eventually waits until a condition holds.
func (f *fixture) eventually(what string, holds func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(timeout); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("%s: not within %v; held back: %v", what, timeout, f.Problems())
		}
	}
}

// awaitHeld waits until a file is held back, and returns the reason.
func (f *fixture) awaitHeld(path string) string {
	f.t.Helper()
	reason := ""
	f.eventually(path+" is held back", func() bool {
		reason = f.Problems()[path]
		return reason != ""
	})
	return reason
}

// next returns the first event above a revision.
func (f *fixture) next(rev int64) store.Event {
	f.t.Helper()
	var event store.Event
	f.eventually(fmt.Sprintf("an event after %d", rev), func() bool {
		events, _, err := f.Since(rev, 1)
		if err != nil {
			f.t.Fatal(err)
		}
		if len(events) == 0 {
			return false
		}
		event = events[0]
		return true
	})
	return event
}

const nodeKey = "/registry/minions/n1"

func node(more string) string {
	return `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u-1","creationTimestamp":"2026-01-02T03:04:05Z"` + more + "}}\n"
}

const widgetCRD = `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"widgets.example.com"},
 "spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1","served":true,
 "storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","required":["size"],
 "properties":{"size":{"type":"integer","minimum":1},"port":{"x-kubernetes-int-or-string":true},
 "note":{"type":"string","nullable":true}}}}}}}]}}`

func widget(group, spec string) string {
	return `{"apiVersion":"` + group + `/v1","kind":"Widget","metadata":{"name":"w","namespace":"default"},"spec":` + spec + `}`
}
