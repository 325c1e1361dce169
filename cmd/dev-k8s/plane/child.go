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
	// grace is how long a child may take to end in order. An API server waits a minute
	// for clients that watch, and loses nothing when it is killed.
	grace = 3 * time.Second
	// restart is how long one that ended by itself is left alone.
	restart = time.Second
)

// child is a program that runs as long as this one does. What it says is in a file.
type child struct {
	name   string
	path   string
	args   []string
	log    string
	logger *slog.Logger

	cancel context.CancelFunc
	ended  chan struct{}
}

// begin starts the child, and starts it again whenever it ends, until stop.
func (c *child) begin(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(c.log), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx)) // children end in their order, by stop
	c.ended = make(chan struct{})
	go func() {
		defer close(c.ended)
		defer out.Close()
		// The kernel ends the child with the thread that began it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for {
			err := c.run(ctx, out)
			if ctx.Err() != nil {
				return
			}
			c.logger.Error("a part ended, and is started again", slog.String("part", c.name), slog.Any("error", err), slog.String("log", c.log))
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

// stop returns when the child has ended.
func (c *child) stop() {
	if c.cancel != nil {
		c.cancel()
		<-c.ended
	}
}

// tail is the end of what the child said.
func (c *child) tail() string {
	said, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// wait returns when check has no error any more.
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
