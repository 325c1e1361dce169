package docker

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/nstance/nstance/pkg/provider"
)

// request is the engine's create request, with the files to copy.
type request struct {
	config *container.Config
	host   *container.HostConfig
	files  bootstrap
}

// bootstrap is the location and owner of the agent's first files in a container.
type bootstrap struct {
	into   string // the folder that the engine unpacks into
	prefix string // path of agentDir within it
	user   int
	node   bool // include the userdata
}

// render converts a spec into a request.
func (cfg Config) render(spec provider.Spec) (request, error) {
	a, limits, err := cfg.decodeArgs(spec)
	if err != nil {
		return request{}, err
	}
	labels := map[string]string{}
	maps.Copy(labels, a.Labels)
	maps.Copy(labels, spec.Tags)
	labels[labelHostname], labels[labelSubnet] = spec.Hostname, spec.Subnet
	if cfg.EngineScope != "" {
		labels[labelEngineScope] = cfg.EngineScope
	}
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

// harden restricts an agent's container to a writable folder and the network. The folder is a
// volume: files can be copied into a volume before the start, but a tmpfs would hide them.
func (cfg Config) harden(r *request) {
	r.config.User = fmt.Sprintf("%d:%d", AgentUser, AgentUser)
	r.host.CapDrop = []string{"ALL"}
	r.host.SecurityOpt = []string{"no-new-privileges"}
	r.host.Mounts = []mount.Mount{{Type: mount.TypeVolume, Target: agentDir}}
	if !cfg.WritableRoot {
		r.host.ReadonlyRootfs = true
		r.host.Tmpfs = map[string]string{"/tmp": "rw,noexec,nosuid,nodev,mode=1777,size=64m"}
	}
	// With a read-only root the engine unpacks only into volumes.
	r.files = bootstrap{into: agentDir, prefix: "./", user: AgentUser}
}

// shape applies the server's options to a whole machine.
func (n *Node) shape(r *request, a args) {
	r.config.Image, r.config.User = cmp.Or(a.Image, n.Image), "0:0"
	r.host.Privileged, r.host.Runtime, r.host.Binds = n.Privileged, n.Runtime, n.Binds
	for _, at := range n.Volumes {
		r.host.Mounts = append(r.host.Mounts, mount.Mount{Type: mount.TypeVolume, Target: at})
	}
	r.host.Tmpfs = map[string]string{}
	for _, at := range n.Tmpfs {
		r.host.Tmpfs[at] = "" // the engine's default: noexec, nosuid, nodev
	}
	r.files = bootstrap{into: "/", prefix: agentDir[1:] + "/", node: true}
}
