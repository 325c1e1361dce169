package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// harness lets a row use what was made for tests: a control plane, and shards that
// behave. Of testing.TB it has what these call. It is safe for concurrent use, but for
// what ends the row, which is for the row's own goroutine.
type harness struct {
	testing.TB
	ctx context.Context

	mu   sync.Mutex
	ends []func()
	errs []error
}

// within runs a part of a row in a harness, and cleans up after it.
func within(ctx context.Context, do func(*harness) error) error {
	h := &harness{ctx: ctx}
	done := make(chan struct{})
	go func() { // of its own, for Fatal ends it
		defer close(done)
		defer h.end()
		if err := do(h); err != nil {
			h.note(err)
		}
	}()
	<-done
	return errors.Join(h.errs...)
}

func (h *harness) end() {
	for _, end := range slices.Backward(h.ends) {
		end()
	}
}

func (h *harness) Context() context.Context { return h.ctx }
func (*harness) Helper()                    {}
func (*harness) Name() string               { return "bench" }
func (*harness) Log(...any)                 {}
func (*harness) Logf(string, ...any)        {}

// Cleanup has something be done at the end, before what was asked for earlier.
func (h *harness) Cleanup(end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, end)
}

// TempDir is a folder that goes at the end.
func (h *harness) TempDir() string {
	dir, err := os.MkdirTemp("", "nstance-bench-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (h *harness) Error(args ...any) { h.note(errors.New(fmt.Sprint(args...))) }

func (h *harness) Errorf(format string, args ...any) { h.note(fmt.Errorf(format, args...)) }

// Fatal notes an error and ends the goroutine that calls it, as that of a test does.
func (h *harness) Fatal(args ...any) {
	h.Error(args...)
	runtime.Goexit()
}

func (h *harness) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	runtime.Goexit()
}

// Skip ends the row as Fatal does: a figure that can't be had is told.
func (h *harness) Skip(args ...any) { h.Fatal(args...) }

func (h *harness) Failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.errs) > 0
}

func (h *harness) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errs = append(h.errs, err)
}
