package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// grace bounds a child's graceful shutdown. An API server waits a minute for watches, and
	// loses nothing when it is killed.
	grace = 3 * time.Second
	// restart is the delay before a child that exited is restarted.
	restart = time.Second
)

// child is a program that runs as long as this one. Its output goes to a file.
type child struct {
	name   string
	path   string
	args   []string
	log    string
	logger *slog.Logger

	cancel context.CancelFunc
	ended  chan struct{}
}

// begin starts the child, and restarts it whenever it exits, until stop.
func (c *child) begin(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(c.log), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx)) // children are stopped in order, by stop
	c.ended = make(chan struct{})
	go func() {
		defer close(c.ended)
		defer out.Close()
		// The kernel kills the child when the thread that started it exits.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for {
			err := c.run(ctx, out)
			if ctx.Err() != nil {
				return
			}
			c.logger.Error("a process exited and is restarted", slog.String("part", c.name), slog.Any("error", err), slog.String("log", c.log))
			select {
			case <-ctx.Done():
				return
			case <-time.After(restart):
			}
		}
	}()
	return nil
}

func (c *child) run(ctx context.Context, out *os.File) error {
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace // then it is killed
	return cmd.Run()
}

// stop stops the child and waits until it has exited.
func (c *child) stop() {
	if c.cancel != nil {
		c.cancel()
		<-c.ended
	}
}

// tail returns the end of the child's output.
func (c *child) tail() string {
	said, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// wait waits until check succeeds.
func (c *child) wait(ctx context.Context, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; the end of %s:\n%s", c.name, errors.Join(err, ctx.Err()), c.log, c.tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
