package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// restartDelay is the time until a process that ended is restarted: long enough that one that can't
// start does not spin, short enough that a killed server is back before its absence matters.
const restartDelay = 500 * time.Millisecond

// component keeps one process running until it is stopped.
type component struct {
	spec   Spec
	runDir string
	out    io.Writer // receives prefixed lines
	log    *slog.Logger

	mu       sync.Mutex
	cmd      *exec.Cmd
	exited   chan struct{} // closed when the current process has ended
	wanted   bool
	restarts int
	last     string // how the last process ended
}

// start starts the process, which is restarted whenever it ends. It does nothing if the process
// runs.
func (c *component) start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = true
	if c.cmd != nil {
		return nil
	}
	return c.spawn(context.WithoutCancel(ctx))
}

// spawn starts the process through a shell that writes its pid to a file before it execs the
// program, so that a process is never running without a pid file.
func (c *component) spawn(ctx context.Context) error {
	script := `echo $$ >"$1.new" && mv "$1.new" "$1" && shift && exec "$@"`
	args := append([]string{"-c", script, "sh", pidFile(c.runDir, c.spec.Name), c.spec.Path}, c.spec.Args...)
	// It runs until stop, not only until the end of a request.
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, c.spec.Env...)
	// With a process group of its own, Ctrl-C only reaches the supervisor, which then stops
	// everything in the right order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	logs, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", c.spec.Name, err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.spec.Name, err)
	}
	c.cmd, c.exited = cmd, make(chan struct{})
	go c.follow(ctx, cmd, logs, c.exited)
	return nil
}

// follow copies a process's output until it ends, then restarts it unless it was stopped.
func (c *component) follow(ctx context.Context, cmd *exec.Cmd, logs io.Reader, exited chan struct{}) {
	lines := bufio.NewReader(logs)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			fmt.Fprintf(c.out, "%-8s | %s\n", c.spec.Name, strings.TrimRight(line, "\n"))
		}
		if err != nil {
			break
		}
	}
	err := cmd.Wait()

	c.mu.Lock()
	c.cmd = nil
	c.last = exitReason(err)
	again := c.wanted
	if again {
		c.restarts++
	}
	c.mu.Unlock()
	os.Remove(pidFile(c.runDir, c.spec.Name))
	close(exited)
	if !again {
		return
	}
	c.log.Warn("process ended, starting it again", slog.String("component", c.spec.Name), slog.String("how", exitReason(err)))
	time.AfterFunc(restartDelay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.wanted || c.cmd != nil {
			return
		}
		if err := c.spawn(ctx); err != nil {
			c.last = err.Error()
		}
	})
}

func exitReason(err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "exited with 0"
	case errors.As(err, &exit):
		return exit.String()
	default:
		return err.Error()
	}
}

// stop sends sig and waits for the process; after stopGrace it kills it.
func (c *component) stop(sig syscall.Signal) {
	c.mu.Lock()
	c.wanted = false
	cmd, exited := c.cmd, c.exited
	c.mu.Unlock()
	if cmd == nil {
		return
	}
	// The process may have ended already.
	_ = cmd.Process.Signal(sig)
	select {
	case <-exited:
	case <-time.After(stopGrace):
		_ = cmd.Process.Kill()
		<-exited
	}
}

func pidFile(runDir, name string) string { return filepath.Join(runDir, name+".pid") }
