package stack

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// farewell is what a supervisor that cleaned up itself writes to its guard.
const farewell = "done\n"

// startGuard starts the guard and returns the function that dismisses it.
func startGuard(ctx context.Context, cfg Config) (dismiss func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the supervisor's own binary: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	defer r.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, "guard", "--temp", cfg.Temp, "--bin", cfg.Bin, "--provider", cfg.Provider)
	cmd.Stdin = r
	// Out of the terminal's reach: a hang-up or Ctrl-C must not end the guard
	// together with what it guards.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return func() {
		_, _ = io.WriteString(w, farewell)
		w.Close()
		_ = cmd.Wait()
	}, nil
}

// Guard waits for the supervisor's end of the pipe to close, and cleans up when
// the supervisor did not say that it had.
func Guard(ctx context.Context, cfg Config, pipe io.Reader) error {
	said, err := io.ReadAll(pipe)
	if err != nil {
		return fmt.Errorf("watch the supervisor: %w", err)
	}
	if string(said) == farewell {
		return nil
	}
	return Clean(ctx, cfg)
}
