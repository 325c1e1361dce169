package stack

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// Down stops the stack, and kills what is left of it if there is no supervisor.
func (f Flags) Down(ctx context.Context) error {
	cfg, err := f.config(ctx, io.Discard)
	if err != nil {
		return err
	}
	client := NewClient(cfg.Temp)
	if r, err := client.Status(ctx); err == nil {
		defer awaitExit(r.Supervisor)
	}
	if err := client.Shutdown(ctx); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	for {
		unlock, err := lock(cfg.Temp)
		if errors.Is(err, os.ErrNotExist) {
			return nil // never started
		}
		if err == nil {
			defer unlock()
			return Clean(ctx, cfg)
		}
		if retry.Wait(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// awaitExit waits for a process that is about to end, but not long: it may never be reaped.
func awaitExit(pid int) {
	for range exitPolls {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(exitPollInterval) // not a child of this process, so there is no event to wait for
	}
}

const (
	exitPollInterval = 10 * time.Millisecond
	exitPolls        = 200
)
