package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"

	"github.com/nstance/nstance/pkg/provider"
)

// The child starts as a shell. It records its pid and start, which the exec that
// follows does not change, and only then closes the lock (descriptor 3) and
// tells the server so by closing descriptor 4. A child that can't record itself
// never becomes an agent.
const script = record + ` > "$1" || exit 1
exec 3>&- 4>&-
shift
exec "$@"`

// spawn starts the agent and waits until it recorded its pid. Its error is
// definite unless ctx ended before that, when the child may go on. The caller
// keeps its own copy of the lock.
func (p *Provider) spawn(ctx context.Context, f folder, lock *os.File, env []string) error {
	if err := checkAgent(p.cfg.Agent); err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	}
	output, err := os.OpenFile(f.file(logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return unmade(err)
	}
	defer output.Close()
	ready, told, err := os.Pipe()
	if err != nil {
		return unmade(err)
	}
	defer ready.Close()
	life := context.WithoutCancel(ctx) // the process outlives the request, and the server
	cmd := exec.CommandContext(life, "/bin/sh", "-c", script, "sh", f.file(pidFile), p.cfg.Agent)
	cmd.Dir, cmd.Env = f.path, env
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{lock, told}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = p.start(cmd, f)
	_ = told.Close() // the child has its own
	if err != nil {
		return unmade(err)
	}
	go p.reap(life, cmd, f)
	return p.recorded(ctx, f, ready)
}

// start starts the child and enters it among the unreaped, both under the lock:
// whoever reads the pid that the child records finds it there.
func (p *Provider) start(cmd *exec.Cmd, f folder) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	p.unreaped[f.name] = cmd.Process.Pid
	return nil
}

// recorded waits for the child's word.
func (p *Provider) recorded(ctx context.Context, f folder, ready *os.File) error {
	release := context.AfterFunc(ctx, func() { _ = ready.Close() })
	defer release()
	if _, err := io.Copy(io.Discard, ready); err != nil {
		return errors.Join(err, ctx.Err())
	}
	_, born, err := f.birth()
	if err != nil {
		return err
	}
	if !born {
		return fmt.Errorf("%w: the child could not record its pid, see %s", provider.ErrQuota, logFile)
	}
	return nil
}

// reap takes the exit status of a child of ours, which would stay a zombie
// otherwise, and writes it down. Until that is done the child counts as running, so
// that whoever learns of its end learns why.
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
			p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "exit status can't be written", slog.String("instance", f.name), slog.Any("error", err))
		}
		p.mu.Lock()
		if p.unreaped[f.name] == pid { // and not that of a later create
			delete(p.unreaped, f.name)
		}
		p.mu.Unlock()
		p.touch(f.name)
	})
}

// noteExit writes how the process ended, if its folder is still there and still
// its own.
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
		return f.discard() // somebody else was removing it, and our lock kept it
	}
	return nil
}
