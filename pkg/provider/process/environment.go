package process

import (
	"github.com/nstance/nstance/pkg/provider"
)

// args are what a group may set for its processes.
type args struct {
	Env map[string]string `json:"env"`
}

// CheckArgs implements provider.ArgsChecker.
func (cfg Config) CheckArgs(spec provider.Spec) error {
	_, err := decodeArgs(spec)
	return err
}

// CheckArgs implements provider.ArgsChecker.
func (p *Provider) CheckArgs(spec provider.Spec) error { return p.cfg.CheckArgs(spec) }

func decodeArgs(spec provider.Spec) (a args, err error) {
	wrong := provider.Decode("args", spec.Args, &a)
	return a, append(wrong, provider.CheckEnvironment("args.env", a.Env)...).Err()
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns all that an agent finds in its environment: nothing of
// the server's own comes in, which may hold secrets.
func (p *Provider) environment(spec provider.Spec) ([]string, error) {
	a, err := decodeArgs(spec)
	if err != nil {
		return nil, err
	}
	f, _ := p.folder(string(spec.ID)) // a valid id is a valid name
	return provider.MergeEnvironment(map[string]string{"PATH": defaultPath}, p.cfg.Env, a.Env, spec.Environment(), map[string]string{
		"NSTANCE_INSTANCE_IPV4": "127.0.0.1",
		"NSTANCE_IDENTITY_DIR":  f.file(identityDir),
		"NSTANCE_KEYS_DIR":      f.file(keysDir),
		"NSTANCE_RECV_DIR":      f.file(recvDir),
	}), nil
}
