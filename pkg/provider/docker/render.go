package docker

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/nstance/nstance/pkg/provider"
)

// request is what the engine is asked for.
type request struct {
	config *container.Config
	host   *container.HostConfig
	files  bootstrap
}

// bootstrap says where the agent's first files go in a container, and to which user.
type bootstrap struct {
	into   string // the folder that the engine unpacks into
	prefix string // of agentDir within it
	user   int
	node   bool // the userdata goes too
}

// render turns a spec into what the engine is asked for.
func (cfg Config) render(spec provider.Spec) (request, error) {
	a, limits, err := cfg.decodeArgs(spec)
	if err != nil {
		return request{}, err
	}
	labels := map[string]string{}
	maps.Copy(labels, a.Labels)
	maps.Copy(labels, spec.Tags)
	labels[labelHostname], labels[labelSubnet] = spec.Hostname, spec.Subnet
	r := request{
		config: &container.Config{
			Image:    cmp.Or(a.Image, cfg.Image),
			Hostname: spec.Hostname,
			Labels:   labels,
			Env: provider.MergeEnvironment(cfg.Env, a.Env, spec.Environment(), map[string]string{
				"NSTANCE_IDENTITY_DIR": agentDir + "/identity",
				"NSTANCE_KEYS_DIR":     agentDir + "/keys",
				"NSTANCE_RECV_DIR":     agentDir + "/recv",
			}),
		},
		host: &container.HostConfig{
			NetworkMode:   container.NetworkMode(cmp.Or(a.Network, cfg.Network)),
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			ExtraHosts:    a.ExtraHosts,
			LogConfig:     container.LogConfig{Type: a.LogDriver, Config: a.LogOptions},
			Resources:     limits,
		},
	}
	if a.Node {
		cfg.Node.shape(&r, a)
	} else {
		cfg.harden(&r)
	}
	return r, nil
}

// harden leaves an agent what it needs: a folder to write to, and the network. Files
// can be copied into a volume before the start, and not into a tmpfs, which would hide
// them.
func (cfg Config) harden(r *request) {
	r.config.User = fmt.Sprintf("%d:%d", AgentUser, AgentUser)
	r.host.CapDrop = []string{"ALL"}
	r.host.SecurityOpt = []string{"no-new-privileges"}
	r.host.Mounts = []mount.Mount{{Type: mount.TypeVolume, Target: agentDir}}
	if !cfg.WritableRoot {
		r.host.ReadonlyRootfs = true
		r.host.Tmpfs = map[string]string{"/tmp": "rw,noexec,nosuid,nodev,mode=1777,size=64m"}
	}
	// The engine refuses to unpack anywhere else in a container whose root is read-only.
	r.files = bootstrap{into: agentDir, prefix: "./", user: AgentUser}
}

// shape gives a whole machine what the server's options say.
func (n *Node) shape(r *request, a args) {
	r.config.Image, r.config.User = cmp.Or(a.Image, n.Image), "0:0"
	r.host.Privileged, r.host.Runtime, r.host.Binds = n.Privileged, n.Runtime, n.Binds
	for _, at := range n.Volumes {
		r.host.Mounts = append(r.host.Mounts, mount.Mount{Type: mount.TypeVolume, Target: at})
	}
	r.host.Tmpfs = map[string]string{}
	for _, at := range n.Tmpfs {
		r.host.Tmpfs[at] = "" // as the engine mounts it by default: noexec, nosuid, nodev
	}
	r.files = bootstrap{into: "/", prefix: agentDir[1:] + "/", node: true}
}
