package process

import (
	"github.com/nstance/nstance/pkg/provider"
)

// args are what a group may set for its processes.
type args struct {
	Env map[string]string `json:"env"`
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns all that an agent finds in its environment: nothing of
// the server's own comes in, which may hold secrets.
func (p *Provider) environment(spec provider.Spec) ([]string, error) {
	var a args
	if err := provider.Decode("args", spec.Args, &a); err != nil {
		return nil, err
	}
	if err := provider.CheckEnvironment("args.env", a.Env); err != nil {
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
