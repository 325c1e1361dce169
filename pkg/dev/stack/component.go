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

// restartDelay is how long a process that ended by itself stays down: long
// enough that one that can't start does not spin, short enough that a killed
// server is back before anyone misses it.
const restartDelay = 500 * time.Millisecond

// component keeps one process running until it is told to stop.
type component struct {
	spec   Spec
	runDir string
	out    io.Writer // prefixed lines
	log    *slog.Logger

	mu       sync.Mutex
	cmd      *exec.Cmd
	exited   chan struct{} // closed when the current process has ended
	wanted   bool
	restarts int
	last     string // how the last process ended
}

// start runs the process, and again whenever it ends by itself. Starting what
// runs already does nothing.
func (c *component) start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = true
	if c.cmd != nil {
		return nil
	}
	return c.spawn(context.WithoutCancel(ctx))
}

// spawn starts the process through a shell that writes down its own pid before
// it becomes the program, so that there is no moment at which a process runs
// that nobody could find again.
func (c *component) spawn(ctx context.Context) error {
	script := `echo $$ >"$1.new" && mv "$1.new" "$1" && shift && exec "$@"`
	args := append([]string{"-c", script, "sh", pidFile(c.runDir, c.spec.Name), c.spec.Path}, c.spec.Args...)
	// Its life is the component's, not a request's: stop ends it.
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, c.spec.Env...)
	// A group of its own: Ctrl-C reaches the supervisor alone, which then stops
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

// follow copies a process's output until it ends, and starts the next one if
// one is wanted.
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
	c.last = ended(err)
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
	c.log.Warn("process ended, starting it again", slog.String("component", c.spec.Name), slog.String("how", ended(err)))
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

func ended(err error) string {
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

// stop sends sig and waits for the end; after stopGrace it kills.
func (c *component) stop(sig syscall.Signal) {
	c.mu.Lock()
	c.wanted = false
	cmd, exited := c.cmd, c.exited
	c.mu.Unlock()
	if cmd == nil {
		return
	}
	// The process may be gone already, which is what is wanted.
	_ = cmd.Process.Signal(sig)
	select {
	case <-exited:
	case <-time.After(stopGrace):
		_ = cmd.Process.Kill()
		<-exited
	}
}

func pidFile(runDir, name string) string { return filepath.Join(runDir, name+".pid") }
