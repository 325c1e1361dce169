package docker

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/docker/docker/client"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/registry"
	"github.com/nstance/nstance/pkg/provider/docker/signature"
)

// Pull is an image pull policy.
type Pull string

// Pull policies. Images without a registry in their name are never pulled.
const (
	PullMissing Pull = "missing" // if the engine does not have it
	PullAlways  Pull = "always"  // for each create, so that moved tags are noticed
	PullNever   Pull = "never"   // the engine must have it
)

// Node configures containers that are whole machines: they run as root, with the image's entry
// point and command, and are not hardened.
type Node struct {
	Image      string   `json:"image"`      // unless set by args
	Runtime    string   `json:"runtime"`    // name of an engine runtime; empty: the default
	Privileged bool     `json:"privileged"` // all capabilities and devices
	Volumes    []string `json:"volumes"`    // paths in the container that get an anonymous volume
	Tmpfs      []string `json:"tmpfs"`      // paths in the container that are kept in memory
	Binds      []string `json:"binds"`      // host:container, or host:container:ro
}

// options are the provider's options in the shard's config.
type options struct {
	EngineScope    string            `json:"engine_scope"`
	Host           string            `json:"host"`
	Image          string            `json:"image"`
	Images         []string          `json:"images"`
	Pull           Pull              `json:"pull"`
	VerifyKey      string            `json:"verify_key"`
	RegistryConfig string            `json:"registry_config"`
	Network        string            `json:"network"`
	Networks       []string          `json:"networks"`
	Env            map[string]string `json:"env"`
	ArgsEnv        []string          `json:"args_env"`
	WritableRoot   bool              `json:"writable_root"`
	Node           map[string]any    `json:"node"`
}

// WithOptions returns cfg with the options of the shard's config, as in
// docs/providers/docker.md. Others are errors.
func (cfg Config) WithOptions(values map[string]any) (Config, error) {
	o := options{
		EngineScope: cfg.EngineScope, Host: cfg.Host, Image: cfg.Image, Pull: cfg.Pull, VerifyKey: cfg.VerifyKey,
		RegistryConfig: cfg.RegistryConfig,
		Images:         cfg.Images, Networks: cfg.Networks, ArgsEnv: cfg.ArgsEnv, Network: cfg.Network, WritableRoot: cfg.WritableRoot,
	}
	if wrong := provider.Decode("options", values, &o); len(wrong) > 0 {
		return Config{}, wrong
	}
	cfg.EngineScope, cfg.Host, cfg.Image, cfg.Network = o.EngineScope, o.Host, o.Image, o.Network
	cfg.Images, cfg.Networks, cfg.ArgsEnv = o.Images, o.Networks, o.ArgsEnv
	cfg.Pull, cfg.VerifyKey, cfg.RegistryConfig, cfg.WritableRoot = o.Pull, o.VerifyKey, o.RegistryConfig, o.WritableRoot
	if o.Env != nil {
		cfg.Env = o.Env
	}
	if o.Node != nil {
		cfg.Node = &Node{}
		if wrong := provider.Decode("options.node", o.Node, cfg.Node); len(wrong) > 0 {
			return Config{}, wrong
		}
	}
	return cfg, nil
}

// CheckOptions returns, as FieldErrors, the problems of the options. It is pure: Validate adds
// the checks of this machine.
func (cfg Config) CheckOptions() error {
	var wrong provider.FieldErrors
	if cfg.Image == "" {
		wrong.Addf("options.image", "required: want the agent's image")
	} else {
		cfg.checkImage(&wrong, "options.image", cfg.Image)
	}
	if !slices.Contains([]Pull{"", PullMissing, PullAlways, PullNever}, cfg.Pull) {
		wrong.Addf("options.pull", "%.80q is not valid: want missing, always or never", cfg.Pull)
	}
	if len(cfg.EngineScope) > maxEngineScope || strings.ContainsFunc(cfg.EngineScope, unicode.IsControl) {
		wrong.Addf("options.engine_scope", "%.80q is not valid: want at most %d bytes without control characters",
			cfg.EngineScope, maxEngineScope)
	}
	if cfg.Host != "" {
		if _, err := client.ParseHostURL(cfg.Host); err != nil {
			wrong.Addf("options.host", "%v: want an address such as unix:///var/run/docker.sock", err)
		}
	}
	if cfg.Node != nil {
		cfg.checkNode(&wrong)
	}
	for n, pattern := range cfg.Images {
		if err := registry.CheckPattern(pattern); err != nil {
			wrong.Addf(fmt.Sprintf("options.images[%d]", n), "%.200q is not valid: it %v: want a repository such as ghcr.io/example/nstance-agent, "+
				"ghcr.io/example/* or ghcr.io/example/**", pattern, err)
		}
	}
	for n, network := range cfg.Networks {
		if network == "" {
			wrong.Addf(fmt.Sprintf("options.networks[%d]", n), "%q is not valid: want the name of an engine network", network)
		}
	}
	wrong = append(wrong, provider.CheckArgsEnv("options.args_env", cfg.ArgsEnv)...)
	return append(wrong, provider.CheckEnvironment("options.env", cfg.Env)...).Err()
}

// maxEngineScope bounds Config.EngineScope in bytes; it often is a folder's path.
const maxEngineScope = 4096

// asks reports whether a registry is asked even if the engine has the image.
func (cfg Config) asks() bool { return cfg.VerifyKey != "" || cfg.Pull == PullAlways }

// checkImage reports an image without a registry if one must be asked.
func (cfg Config) checkImage(wrong *provider.FieldErrors, field, image string) {
	if !cfg.asks() {
		return
	}
	if err := registry.Check(image); err != nil {
		reason := "options.pull is always"
		if cfg.VerifyKey != "" {
			reason = "options.verify_key is set, and the engine's own images can't be verified"
		}
		wrong.Addf(field, "%.200q is not valid because %s: it %v", image, reason, err)
	}
}

// covers reports whether one of the mount path and the agent's folder contains the other.
func covers(at string) bool {
	return strings.HasPrefix(agentDir+"/", at+"/") || strings.HasPrefix(at+"/", agentDir+"/")
}

// checkNode checks options.node.
func (cfg Config) checkNode(wrong *provider.FieldErrors) {
	if cfg.Node.Image != "" {
		cfg.checkImage(wrong, "options.node.image", cfg.Node.Image)
	}
	taken := map[string]bool{}
	target := func(field, at string) {
		switch {
		case strings.Contains(at, ":"):
			wrong.Addf(field, "%.200q is not valid: want a path without a colon", at)
		case !path.IsAbs(at) || path.Clean(at) != at || at == "/":
			wrong.Addf(field, "%.200q is not valid: want an absolute path in the container", at)
		case taken[at]:
			wrong.Addf(field, "duplicate %.200q: want each path once in volumes, tmpfs and binds", at)
		}
		taken[at] = true
	}
	for n, at := range cfg.Node.Volumes {
		target(fmt.Sprintf("options.node.volumes[%d]", n), at)
	}
	for n, at := range cfg.Node.Tmpfs {
		field := fmt.Sprintf("options.node.tmpfs[%d]", n)
		if covers(at) {
			wrong.Addf(field, "%.200q is not valid: it would hide the agent's first files, which are below %s", at, agentDir)
		}
		target(field, at)
	}
	for n, bind := range cfg.Node.Binds {
		field := fmt.Sprintf("options.node.binds[%d]", n)
		at, ok := parseBind(bind)
		if !ok {
			wrong.Addf(field, "%.200q is not valid: want host:container or host:container:ro, both absolute paths", bind)
			continue
		}
		if covers(at) {
			wrong.Addf(field, "%.200q is not valid: all containers would share the agent's files, which are below %s", at, agentDir)
		}
		target(field, at)
	}
}

// parseBind returns the path of a bind in the container.
func parseBind(bind string) (at string, ok bool) {
	parts := strings.Split(bind, ":")
	if len(parts) == 3 && (parts[2] == "ro" || parts[2] == "rw") {
		parts = parts[:2]
	}
	return parts[len(parts)-1], len(parts) == 2 && path.IsAbs(parts[0])
}

// Validate returns all problems of cfg.
func (cfg Config) Validate() error {
	problems := []error{cfg.Scope.Check(), cfg.CheckOptions()}
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if cfg.RegistryConfig != "" {
		if err := registry.CheckConfig(cfg.RegistryConfig); err != nil {
			bad("options.registry_config: %w: want the path of a docker config.json", err)
		}
	}
	if l := cfg.Leader; l != nil {
		if l.Network == "" {
			bad("leader_network.interface_id is empty: want a user-defined network")
		}
		if !l.IPv4.Is4() {
			bad("leader_network.ipv4 is %q: want an IPv4 address, the only kind supported here", l.IPv4)
		}
	}
	if cfg.Logger == nil {
		bad("the logger is missing")
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	}
	return nil
}

// maxKeyFile bounds the public key file in bytes.
const maxKeyFile = 64 << 10

// key reads the key that must have signed images; nil if none is configured.
func (cfg Config) key() (*signature.Key, error) {
	if cfg.VerifyKey == "" {
		return nil, nil
	}
	info, err := os.Stat(cfg.VerifyKey)
	if err != nil {
		return nil, fmt.Errorf("%w: options.verify_key: %w", provider.ErrInvalid, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return nil, fmt.Errorf("%w: options.verify_key: %s is not a regular file of at most %d bytes: want a public key",
			provider.ErrInvalid, cfg.VerifyKey, maxKeyFile)
	}
	text, err := os.ReadFile(cfg.VerifyKey)
	if err != nil {
		return nil, fmt.Errorf("%w: options.verify_key: %w", provider.ErrInvalid, err)
	}
	key, err := signature.ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%w: options.verify_key: %s: %w", provider.ErrInvalid, cfg.VerifyKey, err)
	}
	return &key, nil
}
