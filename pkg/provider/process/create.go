package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// Create implements provider.Provider. It returns once the child has recorded
// its pid, a few milliseconds after the spawn. An instance whose process has
// ended is returned as it is, not started again. When nothing was started the
// error is definite and nothing is left behind. Spec.Arch, Spec.InstanceType
// and Spec.Userdata mean nothing to a process.
func (p *Provider) Create(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	if err := spec.Check(p.cfg.Scope); err != nil {
		return provider.VM{}, err
	}
	env, err := p.environment(spec)
	if err != nil {
		return provider.VM{}, err
	}
	if err := ctx.Err(); err != nil {
		return provider.VM{}, err
	}
	if err := provider.Permit(ctx); err != nil {
		return provider.VM{}, err
	}
	if err := p.here(); err != nil { // what is elsewhere may have the instance
		return provider.VM{}, fmt.Errorf("create process of instance %s: %w", spec.ID, err)
	}
	f, _ := p.folder(string(spec.ID)) // a valid id is a valid name
	lock, err := f.lock(ctx, true)
	if err != nil {
		if ctx.Err() != nil {
			return provider.VM{}, err
		}
		if _, known := f.state(); absent(known) { // no earlier create got anywhere either
			err = unmade(err)
		}
		return provider.VM{}, fmt.Errorf("create process of instance %s: %w", spec.ID, err)
	}
	defer lock.Close()
	vm, err := p.create(ctx, f, lock, spec, env)
	p.touch(f.name)
	return vm, err
}

// create does the work under the folder's lock.
func (p *Provider) create(ctx context.Context, f folder, lock *os.File, spec provider.Spec, env []string) (provider.VM, error) {
	if err := provider.Permit(ctx); err != nil { // again: the lock may have taken a while
		return provider.VM{}, err
	}
	s, made, err := p.existing(f, spec)
	if err != nil {
		return provider.VM{}, fmt.Errorf("create process of instance %s: %w", spec.ID, err)
	}
	if made {
		return p.vm(f, s)
	}
	s, err = p.furnish(f, spec)
	if err == nil {
		if err := provider.Permit(ctx); err != nil {
			return provider.VM{}, err // the folder stays; asked again, it is completed
		}
		err = p.spawn(ctx, f, lock, env)
	}
	if err == nil {
		return p.vm(f, s)
	}
	err = fmt.Errorf("create process of instance %s: %w", spec.ID, err)
	if !provider.Definite(err) {
		return provider.VM{}, err
	}
	left := provider.Permit(ctx)
	if left == nil {
		left = f.discard()
	}
	if left != nil {
		// Not definite: what is left has to be resolved under the same id.
		return provider.VM{}, fmt.Errorf("create process of instance %s: %s; clean up: %w", spec.ID, err.Error(), left)
	}
	return provider.VM{}, err
}

// existing looks for what an earlier create left: made means that there is a
// process, or a deletion, and nothing more to do.
func (p *Provider) existing(f folder, spec provider.Spec) (s state, made bool, err error) {
	s, err = f.state()
	b, born, birthErr := f.birth()
	switch {
	case birthErr != nil:
		return state{}, false, birthErr
	case absent(err), errors.Is(err, errMalformed):
		if born && b.alive() {
			return state{}, false, f.lost(b)
		}
		return state{}, false, f.clear()
	case err != nil:
		return state{}, false, err
	case !p.cfg.Scope.Owns(s.Tags) || provider.TaggedID(s.Tags) != spec.ID:
		return state{}, false, fmt.Errorf("%w: %s belongs to another instance", provider.ErrInvalid, f.path)
	}
	_, err = os.Lstat(f.file(deletingFile))
	return s, born || err == nil, nil
}

// furnish prepares the folder for the agent, the tags first.
func (p *Provider) furnish(f folder, spec provider.Spec) (state, error) {
	s := state{Tags: maps.Clone(spec.Tags), Hostname: spec.Hostname, Subnet: spec.Subnet, CreatedAt: time.Now().UTC()}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return state{}, fmt.Errorf("%w: tags: %w", provider.ErrInvalid, err)
	}
	if err := f.write(stateFile, append(data, '\n')); err != nil {
		return state{}, unmade(err)
	}
	for _, dir := range []string{identityDir, keysDir, recvDir} {
		if err := os.Mkdir(f.file(dir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return state{}, unmade(err)
		}
	}
	identity := folder{path: f.file(identityDir)}
	for name, content := range map[string][]byte{"ca.crt": spec.Bootstrap.CACert, "nonce.jwt": []byte(spec.Bootstrap.Nonce)} {
		if err := identity.write(name, content); err != nil {
			return state{}, unmade(err)
		}
	}
	return s, nil
}

// unmade gives an error from before the spawn its kind: nothing was made. A
// missing permission is for a person to see; all else, a full disk above all, is
// the host out of something.
func unmade(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", provider.ErrUnauthorized, err)
	}
	return fmt.Errorf("%w: %w", provider.ErrQuota, err)
}
