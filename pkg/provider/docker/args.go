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
	"github.com/nstance/nstance/pkg/provider/docker/registry"
)

// args are the args of a group's containers. Only the server's own options can give a container
// additional privileges: see Node.
type args struct {
	Image      string            `json:"image"`       // overrides the provider's; see checkRepository
	Node       bool              `json:"node"`        // a whole machine, as configured by options.node
	Network    string            `json:"network"`     // overrides the provider's; must be one of the options'
	Env        map[string]string `json:"env"`         // added to the agent's environment; see provider.CheckOpen
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

// decodeArgs decodes the args of a spec. The error lists all problems.
func (cfg Config) decodeArgs(spec provider.Spec) (a args, limits container.Resources, err error) {
	wrong := provider.Decode("args", spec.Args, &a)
	wrong = append(wrong, provider.CheckOpen("args.env", a.Env, cfg.ArgsEnv)...)
	limits = a.resources(&wrong)
	cfg.checkAgainst(&wrong, a)
	for _, name := range slices.Sorted(maps.Keys(a.Labels)) {
		if strings.HasPrefix(name, "nstance:") {
			wrong.Addf("args.labels."+name, "labels that begin with nstance: are reserved for the provider")
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
		cfg.checkRepository(wrong, a)
	}
	switch {
	case a.Node && cfg.Node == nil:
		wrong.Addf("args.node", "options.node is not configured: want false, or set options.node in the server's config")
	case a.Node && cfg.Node.Image == "" && a.Image == "":
		wrong.Addf("args.image", "required: options.node names no image for args.node")
	case a.Node && cfg.Node.Image != "" && a.Image != "" && a.Image != cfg.Node.Image:
		wrong.Addf("args.image", "%.200q is not allowed with args.node: remove it, options.node sets the image", a.Image)
	}
	a.checkLog(wrong)
	if a.Network != "" && a.Network != cfg.Network && !slices.Contains(cfg.Networks, a.Network) {
		wrong.Addf("args.network", "%.80q is not valid: remove it, or use a network of options.network or options.networks%s",
			a.Network, listed(append([]string{cfg.Network}, cfg.Networks...)))
	}
}

// checkRepository reports an image whose repository the options don't allow: those of the agent
// and node images, and options.images. A signature alone is not enough, as a key may sign all
// kinds of images.
func (cfg Config) checkRepository(wrong *provider.FieldErrors, a args) {
	own := []string{cfg.Image}
	if a.Node && cfg.Node != nil {
		own = append(own, cfg.Node.Image)
	}
	asked, err := registry.Repository(a.Image)
	if err != nil {
		wrong.Addf("args.image", "%.200q is not valid: it %v", a.Image, err)
		return
	}
	var want []string
	for _, image := range own {
		repository, err := registry.Repository(image)
		if err != nil || image == "" {
			continue
		}
		if repository == asked && registry.Hosted(image) == registry.Hosted(a.Image) {
			return
		}
		want = append(want, repository)
	}
	if !slices.ContainsFunc(cfg.Images, func(pattern string) bool { return registry.Match(pattern, a.Image) }) {
		wrong.Addf("args.image", "%.200q is not valid: want an image of a repository in options.image or options.images%s",
			a.Image, listed(append(want, cfg.Images...)))
	}
}

// listed formats the valid values, if there are any.
func listed(names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(": %.300s", strings.Join(names, ", "))
}

// checkLog checks the log settings of a group's containers. The engine itself runs the log
// drivers: others than these dial addresses, read files and use the host's cloud identity.
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
	// maxCPUs keeps the engine's nano-CPUs within their type.
	maxCPUs = 1 << 20
	// defaultPids limits the processes and threads of an agent's container. An agent has about
	// ten.
	defaultPids = 512
)

func (a args) resources(wrong *provider.FieldErrors) (r container.Resources) {
	if a.Memory != "" {
		n, ok := parseBytes(a.Memory)
		if !ok {
			wrong.Addf("args.memory", "%.80q is not valid: want bytes such as 512m or 2g", a.Memory)
		}
		r.Memory, r.MemorySwap = n, n // no additional swap
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

// parseBytes parses a positive integer with an optional unit: k, m or g, in powers of 1024.
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
