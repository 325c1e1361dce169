//go:build integration

package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// Label is on each container, network and volume of a story, with the story's name.
const Label = "nstance.integration"

// World is a story's part of the engine.
type World struct {
	*testing.T
	API     *client.Client
	Story   string
	Cluster string // the id of the story's cluster, which is in the labels of the docker provider's containers
	Root    string // the repository's root
	Dir     string // the story's folder, with a path short enough for sockets, accessible to all users
}

// Begin prepares a story, with nothing left from earlier runs, and removes everything when the test
// ends. The name has letters, digits and dashes, at most 20; two runs of one story can't use an
// engine at the same time. Without an engine the test ends here.
func (e *Engine) Begin(t *testing.T, story string) *World {
	t.Helper()
	api := e.need(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	w := &World{T: t, API: api, Story: story, Cluster: "integration-" + story, Root: root}
	w.lock()
	// The name is derived from the story, so that the next run removes what a killed one left, and
	// short enough for sockets: not in TMPDIR, which differs between runs.
	w.Dir = fmt.Sprintf("/tmp/nstance-%s-%d", story, os.Getuid())
	err = errors.Join(os.RemoveAll(w.Dir), os.Mkdir(w.Dir, 0o755), os.Chmod(w.Dir, 0o755)) // for the users of the containers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(w.Dir); err != nil {
			t.Error("clean up: ", err)
		}
	})
	if err := errors.Join(w.sweep(t.Context()), os.RemoveAll(w.logs())); err != nil {
		t.Fatal("clean up after an earlier run: ", err)
	}
	t.Cleanup(w.end)
	return w
}

// In returns the same World for a subtest.
func (w *World) In(t *testing.T) *World {
	within := *w
	within.T = t
	return &within
}

// Eventually waits until check returns nil, within a time limit, and returns how long it took. It
// polls every 20 ms, as there is no event to wait for.
func (w *World) Eventually(within time.Duration, what string, check func(context.Context) error) time.Duration {
	w.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(w.Context(), within)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		err := check(ctx)
		if err == nil {
			tick.Stop()
			return time.Since(began)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.Fatalf("not within %s: %s: %v", within, what, err)
		}
	}
}

// lock locks the story for this run.
func (w *World) lock() {
	w.Helper()
	file, err := hold(w.Story)
	w.Must(err)
	w.Cleanup(func() { _ = file.Close() })
}

// Held returns why a story can't begin now; nil: it can.
func (w *World) Held(story string) error {
	file, err := hold(story)
	if err == nil {
		err = file.Close()
	}
	return err
}

// hold takes a story's lock, until the file is closed.
func hold(story string) (*os.File, error) {
	// One folder for all users of this machine, whatever TMPDIR is, as they share the engine. In
	// it, the kernel may refuse O_CREATE for another user's file.
	path := "/tmp/nstance-integration-" + story + ".lock"
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		file, err = os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("hold the story %q: %w", story, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close() // no lock is held
		return nil, fmt.Errorf("the story %q is being told by another process, which holds %s: %w", story, path, err)
	}
	return file, nil
}

// end saves the containers' logs if the test failed, and removes everything.
func (w *World) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if w.Failed() {
		w.saveLogs(ctx)
	}
	if err := w.sweep(ctx); err != nil {
		w.Errorf("clean up: %v", err)
	}
	if left, err := w.left(ctx); err != nil || len(left) > 0 {
		w.Errorf("left behind: %v (%v)", left, err)
	}
}
