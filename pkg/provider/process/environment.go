package process

import (
	"github.com/nstance/nstance/pkg/provider"
)

// args are the args of a group's processes.
type args struct {
	Env map[string]string `json:"env"`
}

// CheckArgs implements provider.ArgsChecker.
func (cfg Config) CheckArgs(spec provider.Spec) error {
	_, err := cfg.decodeArgs(spec)
	return err
}

// CheckArgs implements provider.ArgsChecker.
func (p *Provider) CheckArgs(spec provider.Spec) error { return p.cfg.CheckArgs(spec) }

func (cfg Config) decodeArgs(spec provider.Spec) (a args, err error) {
	wrong := provider.Decode("args", spec.Args, &a)
	return a, append(wrong, provider.CheckOpen("args.env", a.Env, cfg.ArgsEnv)...).Err()
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns the complete environment of an agent. It inherits nothing from the
// server, whose environment may hold secrets.
func (p *Provider) environment(spec provider.Spec) ([]string, error) {
	a, err := p.cfg.decodeArgs(spec)
	if err != nil {
		return nil, err
	}
	f, _ := p.folder(string(spec.ID)) // a valid ID is a valid name
	return provider.MergeEnvironment(map[string]string{"PATH": defaultPath}, p.cfg.Env, a.Env, spec.Environment(), map[string]string{
		"NSTANCE_INSTANCE_IPV4": "127.0.0.1",
		"NSTANCE_IDENTITY_DIR":  f.file(identityDir),
		"NSTANCE_KEYS_DIR":      f.file(keysDir),
		"NSTANCE_RECV_DIR":      f.file(recvDir),
	}), nil
}
