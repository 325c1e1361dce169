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

// atOnce is the concurrency of one Get or Delete.
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

// listPage is the number of folders after which a List reports progress.
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
			p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "not an instance folder", slog.String("folder", name), slog.Any("error", err))
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

// names returns the names of all folders, in no particular order. The shard's folder must be
// the one that was opened: see here.
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

// here returns an error if the shard's folder is not the one that was opened. An unmounted,
// renamed or replaced folder has no instances, which says nothing about those that run.
func (p *Provider) here() error {
	info, err := os.Stat(p.root)
	if err != nil {
		return err
	}
	return p.same(info)
}

func (p *Provider) same(root os.FileInfo) error {
	if !os.SameFile(root, p.opened) {
		return fmt.Errorf("%s was replaced since it was opened: restore it, or restart the server to abandon its instances", p.root)
	}
	return nil
}

// load returns the VM of a folder; ok is false if it is not one of this scope. An error that is
// unreadable is about this folder only.
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

// stateless handles a folder with missing or unreadable tags; nil means that there is no
// instance.
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

// unreadable reports whether an error of load is about one folder only.
func unreadable(err error) bool { return errors.Is(err, errMalformed) || errors.Is(err, errLost) }

// vm returns the instance's state. A child whose exit is not recorded yet counts as running, so
// that its exit is never seen without the reason. The order of reads matters: first the exit,
// then whether it is recorded, then the reason.
func (p *Provider) vm(f folder, s stateRecord) (provider.VM, error) {
	now, err := f.condition()
	if err != nil {
		return provider.VM{}, err
	}
	if now == provider.StateStopped && p.unwritten(f) {
		now = provider.StateRunning
	}
	return f.vm(s, now), nil
}

// unwritten reports whether the process in f is a child whose exit is not recorded yet.
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

// find returns the VMs that ref matches: one, unless another folder has the same instance ID.
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
		// Folders are named after their instance, so folders with other names don't matter
		// here.
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

// candidates returns the folders to search. Folders are named after their instance, so all are
// searched only if that one is not found.
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
