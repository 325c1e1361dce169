//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const logs = "/var/log/machine"

// machine runs programs until one of them ends, then stops all.
type machine struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

// start starts a program that must not end before the machine.
func (m *machine) start(name string, args ...string) error {
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(logs, filepath.Base(name)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(m.ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	m.running.Go(func() {
		defer out.Close()
		err := cmd.Wait()
		m.cancel(fmt.Errorf("%s ended: %w\n%s", name, err, tail(out.Name())))
	})
	return nil
}

// stop stops the running programs.
func (m *machine) stop() {
	m.cancel(context.Canceled)
	m.running.Wait()
}

// tail returns the end of a log.
func tail(file string) string {
	const most = 4 << 10
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	text, _ := io.ReadAll(f)
	return string(text)
}

// output runs a command to its end.
func (m *machine) output(name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(m.ctx, name, args...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s: %w: %s", name, args[0], err, exit.Stderr)
	}
	return out, err
}

const (
	lookEvery = 200 * time.Millisecond
	patience  = 3 * time.Minute
)

// await polls until a check succeeds.
func (m *machine) await(what string, check func() error) error {
	ctx, cancel := context.WithTimeout(m.ctx, patience)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), err)
		case <-time.After(lookEvery):
		}
	}
}
