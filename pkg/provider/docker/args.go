package docker

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/nstance/nstance/pkg/provider"
)

// args are what a group may set for its containers.
type args struct {
	Image      string            `json:"image"`       // instead of the provider's
	Network    string            `json:"network"`     // instead of the provider's
	Env        map[string]string `json:"env"`         // added to the agent's environment
	Labels     map[string]string `json:"labels"`      // added to the container's
	Memory     string            `json:"memory"`      // the limit, such as 512m; empty: none
	CPUs       float64           `json:"cpus"`        // the limit, such as 1.5; 0: none
	PidsLimit  int64             `json:"pids_limit"`  // 0: none
	ExtraHosts []string          `json:"extra_hosts"` // name:address lines of /etc/hosts
}

// request is what the engine is asked for.
type request struct {
	config *container.Config
	host   *container.HostConfig
}

// render turns a spec into what the engine is asked for.
func (p *Provider) render(spec provider.Spec) (request, error) {
	var a args
	if err := provider.Decode("args", spec.Args, &a); err != nil {
		return request{}, err
	}
	if err := provider.CheckEnvironment("args.env", a.Env); err != nil {
		return request{}, err
	}
	resources, err := a.resources()
	if err != nil {
		return request{}, err
	}
	labels, err := p.labels(spec, a.Labels)
	if err != nil {
		return request{}, err
	}
	return request{
		config: &container.Config{
			Image:    cmp.Or(a.Image, p.cfg.Image),
			Hostname: spec.Hostname,
			User:     fmt.Sprintf("%d:%d", AgentUser, AgentUser),
			Labels:   labels,
			Env: provider.MergeEnvironment(p.cfg.Env, a.Env, spec.Environment(), map[string]string{
				"NSTANCE_IDENTITY_DIR": agentDir + "/identity",
				"NSTANCE_KEYS_DIR":     agentDir + "/keys",
				"NSTANCE_RECV_DIR":     agentDir + "/recv",
			}),
		},
		host: &container.HostConfig{
			NetworkMode:   container.NetworkMode(cmp.Or(a.Network, p.cfg.Network)),
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			ExtraHosts:    a.ExtraHosts,
			Resources:     resources,
		},
	}, nil
}

func (p *Provider) labels(spec provider.Spec, extra map[string]string) (map[string]string, error) {
	labels := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if strings.HasPrefix(name, "nstance:") {
			return nil, fmt.Errorf("%w: args.labels.%s: labels that begin with nstance: are the provider's", provider.ErrInvalid, name)
		}
		labels[name] = extra[name]
	}
	maps.Copy(labels, spec.Tags)
	labels[labelHostname], labels[labelSubnet] = spec.Hostname, spec.Subnet
	return labels, nil
}

// maxCPUs keeps the engine's count of billionths within its type.
const maxCPUs = 1 << 20

func (a args) resources() (container.Resources, error) {
	var r container.Resources
	if a.Memory != "" {
		n, ok := parseBytes(a.Memory)
		if !ok {
			return r, fmt.Errorf("%w: args.memory is %.80q: want bytes such as 512m or 2g", provider.ErrInvalid, a.Memory)
		}
		r.Memory, r.MemorySwap = n, n // no swap on top
	}
	if a.CPUs < 0 || a.CPUs > maxCPUs {
		return r, fmt.Errorf("%w: args.cpus is %v: want a number such as 1.5", provider.ErrInvalid, a.CPUs)
	}
	r.NanoCPUs = int64(math.Round(a.CPUs * 1e9))
	if a.PidsLimit < 0 {
		return r, fmt.Errorf("%w: args.pids_limit is %d: want 0 or more", provider.ErrInvalid, a.PidsLimit)
	}
	if a.PidsLimit > 0 {
		r.PidsLimit = &a.PidsLimit
	}
	return r, nil
}

// parseBytes reads a positive whole number with an optional unit: k, m or g, in
// powers of 1024.
func parseBytes(s string) (int64, bool) {
	shift := 0
	if i := strings.IndexByte("kmg", s[len(s)-1]|0x20); i >= 0 {
		shift, s = 10*(i+1), s[:len(s)-1]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64>>shift || s[0] == '+' {
		return 0, false
	}
	return n << shift, true
}
