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

// Down stops the stack and, whether or not a supervisor was there to do it,
// makes sure that nothing of it runs.
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

// awaitExit waits until a process that is about to end has ended, so that whoever
// looks next does not find it. One that nobody reaps is not waited for long.
func awaitExit(pid int) {
	for range exitLooks {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(exitLook) // it is no child of this process, so there is no event to wait for
	}
}

const (
	exitLook  = 10 * time.Millisecond
	exitLooks = 200
)
