package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// atOnce is how many instances one Get or Delete is busy with at the same time.
const atOnce = 8

// Get implements provider.Provider.
func (p *Provider) Get(ctx context.Context, refs []provider.Ref) []provider.Answer {
	return provider.GetEach(refs, atOnce, func(ref provider.Ref) (provider.VM, error) { return p.get(ctx, ref) })
}

func (p *Provider) get(ctx context.Context, ref provider.Ref) (provider.VM, error) {
	found, err := p.find(ctx, ref)
	if err != nil {
		return provider.VM{}, err
	}
	if len(found) == 0 {
		return provider.VM{}, fmt.Errorf("%w: instance %.80q, process folder %.80q", provider.ErrNotFound, ref.ID, ref.ProviderID)
	}
	return found[0], nil
}

// listPage is how many folders a List reads before it says that it goes on.
const listPage = 100

// List implements provider.Provider.
func (p *Provider) List(ctx context.Context) ([]provider.VM, error) {
	names, err := p.names()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var vms []provider.VM
	for n, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if n > 0 && n%listPage == 0 {
			provider.Listed(ctx)
		}
		vm, ok, err := p.load(name)
		if unreadable(err) {
			p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "folder is not an instance's", slog.String("folder", name), slog.Any("error", err))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		if ok {
			vms = append(vms, vm)
		}
	}
	provider.Sort(vms)
	return vms, ctx.Err()
}

// names returns the folders that there are, in no particular order. The shard's own
// folder has to be the one that was opened: see here.
func (p *Provider) names() ([]string, error) {
	root, err := os.Open(p.root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat()
	if err == nil {
		err = p.same(info)
	}
	if err != nil {
		return nil, err
	}
	entries, err := root.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if _, ok := p.folder(e.Name()); ok && e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// here reports whether the shard's folder is the one that was opened. One that is
// unmounted, renamed or replaced has no instance in it, and says nothing of those that
// run: what is not found there is not gone.
func (p *Provider) here() error {
	info, err := os.Stat(p.root)
	if err != nil {
		return err
	}
	return p.same(info)
}

func (p *Provider) same(root os.FileInfo) error {
	if !os.SameFile(root, p.opened) {
		return fmt.Errorf("%s is not the folder that was opened: put that one back, or restart the server if its instances are to go", p.root)
	}
	return nil
}

// load returns the VM in a folder; ok is false when there is none of our scope. An
// unreadable error is about this folder alone.
func (p *Provider) load(name string) (vm provider.VM, ok bool, err error) {
	f, ok := p.folder(name)
	if !ok {
		return provider.VM{}, false, nil
	}
	s, err := f.state()
	if absent(err) || errors.Is(err, errMalformed) {
		return provider.VM{}, false, p.stateless(f, err)
	}
	if err != nil {
		return provider.VM{}, false, err
	}
	if !p.cfg.Scope.Owns(s.Tags) {
		return provider.VM{}, false, nil
	}
	vm, err = p.vm(f, s)
	return vm, err == nil, err
}

// stateless judges a folder without tags, or with none that can be read: nil means that
// there is no instance.
func (p *Provider) stateless(f folder, why error) error {
	if err := p.here(); err != nil {
		return err
	}
	b, born, err := f.birth()
	switch {
	case err != nil:
		return err
	case born && b.alive():
		return f.lost(b)
	case absent(why):
		return nil
	default:
		return why
	}
}

// unreadable reports whether an error of load is about one folder alone.
func unreadable(err error) bool { return errors.Is(err, errMalformed) || errors.Is(err, errLost) }

// vm tells how the instance fares. A child of ours whose end is not written down
// yet runs for a moment more, so that whoever learns of its end learns why. The
// order counts: its end is seen, then whether that is written down, then the reason.
func (p *Provider) vm(f folder, s state) (provider.VM, error) {
	now, err := f.condition()
	if err != nil {
		return provider.VM{}, err
	}
	if now == provider.StateStopped && p.unwritten(f) {
		now = provider.StateRunning
	}
	return f.vm(s, now), nil
}

// unwritten reports whether the process in f is a child of ours whose end was not
// written down yet.
func (p *Provider) unwritten(f folder) bool {
	p.mu.Lock()
	child := p.unreaped[f.name]
	p.mu.Unlock()
	if child == 0 {
		return false
	}
	b, _, err := f.birth()
	return err == nil && b.pid == child
}

// find returns the VMs that ref names: one, unless a stray carries the same
// instance id in a folder of another name.
func (p *Provider) find(ctx context.Context, ref provider.Ref) ([]provider.VM, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := ref.Check(); err != nil {
		return nil, err
	}
	names, err := p.candidates(ref)
	if err != nil {
		return nil, fmt.Errorf("find process of instance %s: %w", ref.ID, err)
	}
	var found []provider.VM
	for _, name := range names {
		vm, ok, err := p.load(name)
		// An instance's folder is named for it, so another one's is not looked for here.
		if errors.Is(err, errMalformed) || errors.Is(err, errLost) && name != ref.ProviderID && name != string(ref.ID) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find process of instance %s: %w", ref.ID, err)
		}
		if ok && ref.Names(vm) {
			found = append(found, vm)
		}
	}
	return found, nil
}

// candidates returns the folders to look into: an instance's folder is named for
// it, so that only an id that is not found that way needs a look at all.
func (p *Provider) candidates(ref provider.Ref) ([]string, error) {
	if ref.ProviderID != "" {
		return []string{ref.ProviderID}, nil
	}
	if p.tagged(ref.ID) {
		return []string{string(ref.ID)}, nil
	}
	return p.names()
}

func (p *Provider) tagged(id fleet.InstanceID) bool {
	f, ok := p.folder(string(id))
	if !ok {
		return false
	}
	s, err := f.state()
	return err == nil && provider.TaggedID(s.Tags) == id
}
