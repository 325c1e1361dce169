package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// Delete implements provider.Provider. It marks the folders, sends SIGTERM and returns; SIGKILL
// after the grace period and the removal follow in the background. If they are interrupted by
// Close or the server's end, a repeated Delete through any Provider over the same Dir resumes
// them.
func (p *Provider) Delete(ctx context.Context, refs []provider.Ref) []error {
	return provider.DeleteEach(refs, atOnce, func(ref provider.Ref) error { return p.each(ctx, ref, "delete", p.delete) })
}

// Stop ends the processes of instances and keeps their folders, so that they are listed as stopped. It
// returns when they have ended; after the grace period they are killed. Idempotent.
func (p *Provider) Stop(ctx context.Context, refs []provider.Ref) []error {
	return provider.DeleteEach(refs, atOnce, func(ref provider.Ref) error { return p.each(ctx, ref, "stop", p.halt) })
}

// each calls do for each folder of an instance.
func (p *Provider) each(ctx context.Context, ref provider.Ref, what string, do func(context.Context, folder, *birth) error) error {
	found, err := p.find(ctx, ref)
	if err != nil {
		return err
	}
	for _, vm := range found {
		if err := provider.Permit(ctx); err != nil {
			return err
		}
		f, _ := p.folder(vm.ProviderID) // the VM was found in it
		err := p.ends.locked(ctx, f, do)
		p.touch(f.name)
		if err != nil {
			return fmt.Errorf("%s process of instance %s: %w", what, vm.ID, err)
		}
	}
	return nil
}

// locked calls do with the folder's lock held, and its process if there is one.
func (e ender) locked(ctx context.Context, f folder, do func(context.Context, folder, *birth) error) error {
	lock, err := f.lock(ctx, false)
	if absent(err) {
		return nil // deleted concurrently
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := provider.Permit(ctx); err != nil { // again, as taking the lock may have taken long
		return err
	}
	if err := e.endUnrecorded(ctx, f); err != nil {
		return err
	}
	if err := f.adopt(ctx); err != nil {
		return err
	}
	b, born, err := f.birth()
	switch {
	case err != nil:
		return err
	case !born || !b.alive():
		return do(ctx, f, nil)
	default:
		return do(ctx, f, &b)
	}
}

func (p *Provider) delete(ctx context.Context, f folder, b *birth) error {
	if err := f.mark(); err != nil {
		// On a full disk the deletion continues without its mark.
		p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "marking the deletion failed", slog.String("instance", f.name), slog.Any("error", err))
	}
	if b == nil {
		return p.ends.discard(ctx, f)
	}
	if err := b.signal(syscall.SIGTERM); err != nil {
		return err
	}
	p.follow(f, *b)
	return nil
}

func (p *Provider) halt(ctx context.Context, f folder, b *birth) error {
	if b != nil {
		if err := b.signal(syscall.SIGTERM); err != nil {
			return err
		}
		if err := awaitEnd(ctx, *b, p.cfg.StopGrace); err != nil {
			return err
		}
	}
	return p.ends.endUser(ctx, f)
}

// mark records that the instance is being deleted.
func (f folder) mark() error {
	file, err := os.OpenFile(f.file(deletingFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// follow completes a deletion in the background, once per instance.
func (p *Provider) follow(f folder, b birth) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending[f.name] || p.background.Err() != nil {
		return
	}
	p.ending[f.name] = true
	p.work.Go(func() {
		err := p.end(f, b)
		if err != nil && p.background.Err() == nil {
			p.cfg.Logger.LogAttrs(p.background, slog.LevelError, "deletion is stuck", slog.String("instance", f.name), slog.Any("error", err))
		}
		p.mu.Lock()
		delete(p.ending, f.name)
		p.mu.Unlock()
		p.touch(f.name)
	})
}

// end waits for the process to end, kills it if it does not, and removes the folder.
func (p *Provider) end(f folder, b birth) error {
	if err := awaitEnd(p.background, b, p.cfg.StopGrace); err != nil {
		return err
	}
	lock, err := f.lock(p.background, false)
	if absent(err) {
		return nil // deleted concurrently by the shard's other server
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if now, born, err := f.birth(); err != nil || (born && now != b) {
		return err // not the process to delete
	}
	return p.ends.discard(p.background, f)
}

// awaitEnd waits for a process to end, and kills it after a grace period.
func awaitEnd(ctx context.Context, b birth, after time.Duration) error {
	grace, cancel := context.WithTimeout(ctx, after)
	defer cancel()
	if awaitExit(grace, b) == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.kill(); err != nil {
		return err
	}
	return awaitExit(ctx, b)
}
