package docker

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/nstance/nstance/pkg/provider"
)

// args are what a group may set for its containers. What would give a container more
// than it has by itself only the server's own options can: see Node.
type args struct {
	Image      string            `json:"image"`       // instead of the provider's
	Node       bool              `json:"node"`        // a whole machine, as options.node says
	Network    string            `json:"network"`     // instead of the provider's
	Env        map[string]string `json:"env"`         // added to the agent's environment
	Labels     map[string]string `json:"labels"`      // added to the container's
	Memory     string            `json:"memory"`      // the limit, such as 512m; empty: none
	CPUs       float64           `json:"cpus"`        // the limit, such as 1.5; 0: none
	PidsLimit  int64             `json:"pids_limit"`  // 0: defaultPids, and for a node none
	ExtraHosts []string          `json:"extra_hosts"` // name:address lines of /etc/hosts
	LogDriver  string            `json:"log_driver"`  // empty: the engine's default
	LogOptions map[string]string `json:"log_options"` // of the driver
}

// CheckArgs implements provider.ArgsChecker.
func (cfg Config) CheckArgs(spec provider.Spec) error {
	_, _, err := cfg.decodeArgs(spec)
	return err
}

// CheckArgs implements provider.ArgsChecker.
func (p *Provider) CheckArgs(spec provider.Spec) error { return p.cfg.CheckArgs(spec) }

// decodeArgs reads the args of a spec, of which nothing else counts. The error lists
// all that is wrong with them.
func (cfg Config) decodeArgs(spec provider.Spec) (a args, limits container.Resources, err error) {
	wrong := provider.Decode("args", spec.Args, &a)
	wrong = append(wrong, provider.CheckEnvironment("args.env", a.Env)...)
	limits = a.resources(&wrong)
	cfg.checkAgainst(&wrong, a)
	for _, name := range slices.Sorted(maps.Keys(a.Labels)) {
		if strings.HasPrefix(name, "nstance:") {
			wrong.Addf("args.labels."+name, "labels that begin with nstance: are the provider's")
		}
	}
	for n, line := range a.ExtraHosts {
		if name, addr, ok := strings.Cut(line, ":"); !ok || name == "" || addr == "" {
			wrong.Addf(fmt.Sprintf("args.extra_hosts[%d]", n), "%.80q is not valid: want name:address", line)
		}
	}
	return a, limits, wrong.Err()
}

// checkAgainst reports args that the server's options don't allow.
func (cfg Config) checkAgainst(wrong *provider.FieldErrors, a args) {
	if a.Image != "" {
		cfg.checkImage(wrong, "args.image", a.Image)
	}
	switch {
	case a.Node && cfg.Node == nil:
		wrong.Addf("args.node", "the provider's options have no node: want false, or options.node in the server's config")
	case a.Node && cfg.Node.Image == "" && a.Image == "":
		wrong.Addf("args.image", "required: options.node names no image for args.node")
	case a.Node && cfg.Node.Image != "" && a.Image != "" && a.Image != cfg.Node.Image:
		wrong.Addf("args.image", "%.200q is not valid beside args.node: want none, for options.node names the image", a.Image)
	}
	a.checkLog(wrong)
	// The host's network, or that of a container which is not the group's.
	if a.Network != cfg.Network && (a.Network == "host" || strings.HasPrefix(a.Network, "container:")) {
		wrong.Addf("args.network", "%.80q is not valid: want a network of the engine; only options.network may name this one", a.Network)
	}
}

// checkLog reports how a group's containers can't log. The engine itself runs the
// drivers: others than these dial addresses, read files and use the cloud's identity of
// the host.
func (a args) checkLog(wrong *provider.FieldErrors) {
	switch a.LogDriver {
	case "", "none", "local", "json-file", "journald":
	default:
		wrong.Addf("args.log_driver", "%.80q is not valid: want json-file, local, journald or none", a.LogDriver)
	}
	for _, name := range slices.Sorted(maps.Keys(a.LogOptions)) {
		switch name {
		case "max-size", "max-file", "compress", "mode", "max-buffer-size", "tag", "labels", "labels-regex", "env", "env-regex":
		default:
			wrong.Addf("args.log_options."+name, "unknown: want max-size, max-file, compress, mode, max-buffer-size, tag, labels or env")
		}
	}
}

const (
	// maxCPUs keeps the engine's count of billionths within its type.
	maxCPUs = 1 << 20
	// defaultPids is how many processes and threads an agent's container may have. An
	// agent has about ten.
	defaultPids = 512
)

func (a args) resources(wrong *provider.FieldErrors) (r container.Resources) {
	if a.Memory != "" {
		n, ok := parseBytes(a.Memory)
		if !ok {
			wrong.Addf("args.memory", "%.80q is not valid: want bytes such as 512m or 2g", a.Memory)
		}
		r.Memory, r.MemorySwap = n, n // no swap on top
	}
	if a.CPUs < 0 || a.CPUs > maxCPUs {
		wrong.Addf("args.cpus", "%v is not valid: want a number such as 1.5", a.CPUs)
	}
	r.NanoCPUs = int64(math.Round(a.CPUs * 1e9))
	if a.PidsLimit < 0 {
		wrong.Addf("args.pids_limit", "%d is not valid: want 0 or more", a.PidsLimit)
	}
	if a.PidsLimit == 0 && !a.Node {
		a.PidsLimit = defaultPids
	}
	if a.PidsLimit > 0 {
		r.PidsLimit = &a.PidsLimit
	}
	return r
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
