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

// folder is a store that runs, and the files that a person has before them.
type folder struct {
	*store.Store
	t    *testing.T
	root string
	stop func()
}

func open(t *testing.T, root string) *folder {
	t.Helper()
	s, err := store.Open(store.Config{Root: root, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	f := &folder{Store: s, t: t, root: root}
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

func (f *folder) path(path string) string { return filepath.Join(f.root, filepath.FromSlash(path)) }

// write is what a person does.
func (f *folder) write(path, text string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path(path)), 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.path(path), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *folder) read(path string) string {
	f.t.Helper()
	text, err := os.ReadFile(f.path(path))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

// put is what a kube-apiserver does.
func (f *folder) put(key, value string) int64 {
	f.t.Helper()
	rev, _, err := f.Commit([]string{key}, func(func(string) *store.Entry) *store.Change {
		return &store.Change{Key: key, Value: []byte(value)}
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return rev
}

func (f *folder) get(key string) *store.Entry {
	f.t.Helper()
	answer, err := f.Range(store.Query{Key: key})
	if err != nil {
		f.t.Fatal(err)
	}
	if len(answer.Entries) == 0 {
		return nil
	}
	return answer.Entries[0]
}

// eventually waits for what an edit comes to.
func (f *folder) eventually(what string, is func() bool) {
	f.t.Helper()
	for late := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			f.t.Fatalf("%s: not within a minute; held back: %v", what, f.Problems())
		}
	}
}

// held waits until a file is held back, and returns why.
func (f *folder) held(path string) string {
	f.t.Helper()
	why := ""
	f.eventually(path+" is held back", func() bool {
		why = f.Problems()[path]
		return why != ""
	})
	return why
}

// next returns the first event above a revision.
func (f *folder) next(rev int64) store.Event {
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
