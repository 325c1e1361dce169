package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"

	"github.com/nstance/nstance/pkg/provider"
)

// spawn starts the agent as a user, nil for the server's own, and records its PID. It runs no
// program in between, so only the agent sees its environment. The agent inherits the life lock
// as descriptor 3, by which it is found if the server dies before it has recorded the PID: see
// adopt. An error is definite: nothing runs.
func (p *Provider) spawn(ctx context.Context, f folder, env []string, user *syscall.Credential) error {
	if err := checkAgent(p.cfg.Agent); err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	}
	output, err := os.OpenFile(f.file(logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return unmade(err)
	}
	defer output.Close()
	life, err := f.live(ctx)
	if err != nil {
		return unmade(err)
	}
	defer life.Close() // the agent has its own
	note, err := f.reserve()
	if err != nil {
		return unmade(err)
	}
	defer note.drop()
	ctx = context.WithoutCancel(ctx) // the process outlives the request, and the server
	cmd := exec.CommandContext(ctx, p.cfg.Agent)
	cmd.Dir, cmd.Env = f.path, env
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{life}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: user}
	if err := p.start(cmd, f); err != nil {
		return unstarted(err)
	}
	if err := note.place(cmd.Process.Pid); err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // our child, so the PID can't have been reused
		_ = cmd.Wait()
		p.forget(f, cmd.Process.Pid)
		return unmade(fmt.Errorf("record the process: %w", err))
	}
	go p.reap(ctx, cmd, f)
	return nil
}

// start starts the child and adds it to unreaped in one critical section, so that a reader of
// the recorded PID finds it there.
func (p *Provider) start(cmd *exec.Cmd, f folder) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	start := cmd.Start
	if cmd.SysProcAttr.Credential != nil {
		start = func() error { return withoutGain(cmd.Start) }
	}
	if err := start(); err != nil {
		return err
	}
	p.unreaped[f.name] = cmd.Process.Pid
	return nil
}

// unstarted wraps an error of the start in its kind.
func unstarted(err error) error {
	for _, of := range []error{syscall.ENOEXEC, syscall.EACCES, syscall.ENOENT, syscall.EPERM} {
		if errors.Is(err, of) {
			return fmt.Errorf("%w: options.agent: %w", provider.ErrInvalid, err)
		}
	}
	return unmade(err)
}

// forget removes a child from unreaped, unless the entry is that of a later create.
func (p *Provider) forget(f folder, pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unreaped[f.name] == pid {
		delete(p.unreaped, f.name)
	}
}

// reap waits for a child, which would otherwise stay a zombie, and records its exit status.
// Until that is done the child counts as running, so that its end is never seen without the
// reason.
func (p *Provider) reap(ctx context.Context, cmd *exec.Cmd, f folder) {
	err := cmd.Wait()
	pid := cmd.Process.Pid
	p.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "process ended",
		slog.String("instance", f.name), slog.Int("pid", pid), slog.Any("status", err))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.background.Err() != nil {
		return
	}
	p.work.Go(func() {
		if err := p.noteExit(f, pid, cmd.ProcessState.String()); err != nil && !absent(err) && p.background.Err() == nil {
			p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "writing the exit status failed", slog.String("instance", f.name), slog.Any("error", err))
		}
		p.forget(f, pid)
		p.touch(f.name)
	})
}

// noteExit records how the process ended, if the folder still exists and is still the
// process's.
func (p *Provider) noteExit(f folder, pid int, status string) error {
	lock, err := f.lock(p.background, false)
	if err != nil {
		return err
	}
	defer lock.Close()
	b, born, err := f.birth()
	if err != nil {
		return err
	}
	if born {
		if b.pid != pid {
			return nil
		}
		return f.write(exitFile, []byte(status))
	}
	if _, err := f.state(); absent(err) {
		return p.ends.discard(p.background, f) // a deletion could not remove it while we held the lock
	}
	return nil
}
