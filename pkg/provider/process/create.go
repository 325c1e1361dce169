package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// Create implements provider.Provider. It returns once the process is started and its PID
// recorded. An instance whose process has ended is returned as it is, not restarted. If nothing
// was started the error is definite, and nothing is left behind. Spec.Arch, Spec.InstanceType
// and Spec.Userdata are ignored.
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
	if err := p.here(); err != nil { // the original folder may have the instance
		return provider.VM{}, fmt.Errorf("create process of instance %s: %w", spec.ID, err)
	}
	f, _ := p.folder(string(spec.ID)) // a valid ID is a valid name
	lock, err := f.lock(ctx, true)
	if err != nil {
		if ctx.Err() != nil {
			return provider.VM{}, err
		}
		if _, known := f.state(); absent(known) { // no earlier create left anything
			err = unmade(err)
		}
		return provider.VM{}, fmt.Errorf("create process of instance %s: %w", spec.ID, err)
	}
	defer lock.Close()
	vm, err := p.create(ctx, f, spec, env)
	p.touch(f.name)
	return vm, err
}

// create does the work of Create. The caller holds the folder's lock.
func (p *Provider) create(ctx context.Context, f folder, spec provider.Spec, env []string) (provider.VM, error) {
	if err := provider.Permit(ctx); err != nil { // again, as taking the lock may have taken long
		return provider.VM{}, err
	}
	if err := f.adopt(ctx); err != nil {
		return provider.VM{}, fmt.Errorf("create process of instance %s: %w", spec.ID, err)
	}
	s, made, err := p.existing(ctx, f, spec)
	if err != nil {
		return provider.VM{}, fmt.Errorf("create process of instance %s: %w", spec.ID, err)
	}
	if made {
		return p.vm(f, s)
	}
	s, user, err := p.furnish(ctx, f, spec)
	if err == nil {
		if err := provider.Permit(ctx); err != nil {
			return provider.VM{}, err // the folder stays for a repeated create
		}
		err = p.spawn(ctx, f, env, user)
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
		left = p.ends.discard(ctx, f)
	}
	if left != nil {
		// Not definite: the remains must be resolved under the same ID.
		return provider.VM{}, fmt.Errorf("create process of instance %s: %s; clean up: %w", spec.ID, err.Error(), left)
	}
	return provider.VM{}, err
}

// existing checks what an earlier create left. made means that there is a process or a
// deletion, and nothing more to do.
func (p *Provider) existing(ctx context.Context, f folder, spec provider.Spec) (s stateRecord, made bool, err error) {
	s, err = f.state()
	b, born, birthErr := f.birth()
	switch {
	case birthErr != nil:
		return stateRecord{}, false, birthErr
	case absent(err), errors.Is(err, errMalformed):
		if born && b.alive() {
			return stateRecord{}, false, f.lost(b)
		}
		return stateRecord{}, false, p.ends.clear(ctx, f)
	case err != nil:
		return stateRecord{}, false, err
	case !p.cfg.Scope.Owns(s.Tags) || provider.TaggedID(s.Tags) != spec.ID:
		return stateRecord{}, false, fmt.Errorf("%w: %s belongs to another instance", provider.ErrInvalid, f.path)
	}
	_, err = os.Lstat(f.file(deletingFile))
	return s, born || err == nil, nil
}

// furnish prepares the folder for the agent, starting with the tags, and returns the user to
// run the agent as, nil for the server's own.
func (p *Provider) furnish(ctx context.Context, f folder, spec provider.Spec) (stateRecord, *syscall.Credential, error) {
	s := stateRecord{Tags: maps.Clone(spec.Tags), Hostname: spec.Hostname, Subnet: spec.Subnet, CreatedAt: time.Now().UTC()}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return stateRecord{}, nil, fmt.Errorf("%w: tags: %w", provider.ErrInvalid, err)
	}
	if err := f.write(stateFile, append(data, '\n')); err != nil {
		return stateRecord{}, nil, unmade(err)
	}
	for _, dir := range agentDirs() {
		if err := os.Mkdir(f.file(dir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return stateRecord{}, nil, unmade(err)
		}
	}
	identity := folder{path: f.file(identityDir)}
	for name, content := range map[string][]byte{"ca.crt": spec.Bootstrap.CACert, "nonce.jwt": []byte(spec.Bootstrap.Nonce)} {
		if err := identity.write(name, content); err != nil {
			return stateRecord{}, nil, unmade(err)
		}
	}
	user, err := p.giveUser(ctx, f)
	return s, user, err
}

// unmade wraps an error from before the spawn in its kind: nothing was made. A missing
// permission needs an administrator; anything else, usually a full disk, means that the host is
// out of resources.
func unmade(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", provider.ErrUnauthorized, err)
	}
	return fmt.Errorf("%w: %w", provider.ErrQuota, err)
}
