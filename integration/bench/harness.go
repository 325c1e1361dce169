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

// harness lets a row use helpers made for tests, such as a control plane and shards. It implements
// the methods of testing.TB that these call. It is safe for concurrent use, except for methods that
// end the row, which only the row's own goroutine may call.
type harness struct {
	testing.TB
	ctx context.Context

	mu   sync.Mutex
	ends []func()
	errs []error
}

// within runs a part of a row in a harness, and cleans up afterwards.
func within(ctx context.Context, do func(*harness) error) error {
	h := &harness{ctx: ctx}
	done := make(chan struct{})
	go func() { // a goroutine of its own, which Fatal ends
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

// Cleanup registers a function for the end; they run in reverse order.
func (h *harness) Cleanup(end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, end)
}

// TempDir returns a folder that is deleted at the end.
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

// Fatal records an error and ends the calling goroutine, as that of a test does.
func (h *harness) Fatal(args ...any) {
	h.Error(args...)
	runtime.Goexit()
}

func (h *harness) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	runtime.Goexit()
}

// Skip ends the row like Fatal: a figure that is not available is reported.
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
