package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// child is a role of this program, in a process of its own.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   string
	ended chan struct{}

	mu     sync.Mutex
	events []event
	fresh  chan struct{} // closed at the next event
}

// start starts a role with the given settings.
func (b *bench) start(ctx context.Context, role, name string, settings any) (*child, error) {
	first, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	program, err := b.program(ctx, role)
	if err != nil {
		return nil, err
	}
	c := &child{
		name: name, cmd: exec.CommandContext(ctx, program, roleFlag, role), ended: make(chan struct{}), fresh: make(chan struct{}),
		log: filepath.Join(b.temp, name+".log"),
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	c.cmd.Stderr = log
	// Ctrl-C is handled by the benchmark, which ends its children in order.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go c.listen(out)
	if _, err := c.stdin.Write(append(first, '\n')); err != nil {
		c.kill()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

func (c *child) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // not an event: a library's output
		}
		c.mu.Lock()
		c.events = append(c.events, e)
		close(c.fresh)
		c.fresh = make(chan struct{})
		c.mu.Unlock()
	}
	// How it ended only matters to a caller that waits for an event in vain.
	_ = c.cmd.Wait()
	close(c.ended)
}

// tell sends a command to the child.
func (c *child) tell(command string) error {
	if _, err := io.WriteString(c.stdin, command+"\n"); err != nil {
		return fmt.Errorf("tell %s to %s: %w", c.name, command, err)
	}
	return nil
}

// ask sends a command and waits for the event that answers it.
func (c *child) ask(ctx context.Context, command string, patience time.Duration) (event, error) {
	asked := time.Now()
	if err := c.tell(command); err != nil {
		return event{}, err
	}
	return c.await(ctx, command, asked, patience)
}

// await returns the first event of a kind after since.
func (c *child) await(ctx context.Context, kind string, since time.Time, patience time.Duration) (event, error) {
	return c.awaitBegun(ctx, kind, "", since, patience)
}

// awaitBegun is await for an event whose text has this prefix. Simultaneous events have no order,
// so one of several is selected by its text.
func (c *child) awaitBegun(ctx context.Context, kind, text string, since time.Time, patience time.Duration) (event, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		c.mu.Lock()
		for _, e := range c.events {
			if e.Kind == kind && strings.HasPrefix(e.Text, text) && e.At.After(since) {
				c.mu.Unlock()
				return e, nil
			}
		}
		fresh := c.fresh
		c.mu.Unlock()
		select {
		case <-fresh:
		case <-c.ended:
			return event{}, fmt.Errorf("%s ended while %q was awaited:\n%s", c.name, kind, c.lastWords())
		case <-late.C:
			return event{}, fmt.Errorf("%w: %s: no %q after %s:\n%s", errTooLate, c.name, strings.TrimSpace(kind+" "+text), patience, c.lastWords())
		case <-ctx.Done():
			return event{}, ctx.Err()
		}
	}
}

// since returns the events of a kind after a time.
func (c *child) since(kind string, at time.Time) []event {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []event
	for _, e := range c.events {
		if e.Kind == kind && e.At.After(at) {
			out = append(out, e)
		}
	}
	return out
}

// lastWords returns the end of the child's log.
func (c *child) lastWords() string {
	body, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(body)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}

func (c *child) signal(s syscall.Signal) error { return c.cmd.Process.Signal(s) }

// stop ends the child in order, and kills it after patience.
func (c *child) stop(patience time.Duration) {
	c.stdin.Close()
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.kill()
	}
}

func (c *child) kill() {
	// An error means that the process has ended already.
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// rss returns the child's resident memory, in MiB.
func (c *child) rss(ctx context.Context) (float64, error) { return rss(ctx, c.cmd.Process.Pid) }

// anonymous returns the anonymous memory of a child, in MiB: its RSS without the pages of files,
// such as its program. On other systems than Linux it is the RSS.
func (c *child) anonymous(ctx context.Context) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if errors.Is(err, os.ErrNotExist) {
		return c.rss(ctx)
	}
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), "\nRssAnon:")
	var kib float64
	if _, err := fmt.Sscan(after, &kib); err != nil {
		return 0, fmt.Errorf("read the anonymous memory of %s: %w", c.name, err)
	}
	return kib / 1024, nil
}

func rss(ctx context.Context, pid int) (float64, error) {
	p, err := process.NewProcessWithContext(ctx, int32(pid))
	if err != nil {
		return 0, err
	}
	info, err := p.MemoryInfoWithContext(ctx)
	if err != nil {
		return 0, err
	}
	return float64(info.RSS) / (1 << 20), nil
}
