package stack

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// cleanedUp is what the supervisor writes to its guard after it has cleaned up itself.
const cleanedUp = "done\n"

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
	// In a session of its own, the guard survives a hang-up or Ctrl-C of the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return func() {
		_, _ = io.WriteString(w, cleanedUp)
		w.Close()
		_ = cmd.Wait()
	}, nil
}

// Guard waits until the supervisor's end of the pipe is closed, and cleans up unless the supervisor
// has done so.
func Guard(ctx context.Context, cfg Config, pipe io.Reader) error {
	said, err := io.ReadAll(pipe)
	if err != nil {
		return fmt.Errorf("watch the supervisor: %w", err)
	}
	if string(said) == cleanedUp {
		return nil
	}
	return Clean(ctx, cfg)
}
