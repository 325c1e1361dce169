package docker

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/docker/docker/client"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/registry"
	"github.com/nstance/nstance/pkg/provider/docker/signature"
)

// Pull says when a registry is asked for an image.
type Pull string

// The policies. None pulls an image whose name says no registry.
const (
	PullMissing Pull = "missing" // when the engine has none of this name
	PullAlways  Pull = "always"  // for each create: a tag that moved counts
	PullNever   Pull = "never"   // the engine has to have it
)

// Node is what containers are like that are whole machines: they run as root, with the
// image's own entry point and command, and are not hardened.
type Node struct {
	Image      string   `json:"image"`      // unless the args name one
	Runtime    string   `json:"runtime"`    // the engine's name of it; empty: its default
	Privileged bool     `json:"privileged"` // all capabilities and devices
	Volumes    []string `json:"volumes"`    // paths in the container that get an anonymous volume
	Tmpfs      []string `json:"tmpfs"`      // paths in the container that are kept in memory
	Binds      []string `json:"binds"`      // host:container, or host:container:ro
}

// options are the provider's options in the shard's config.
type options struct {
	Host           string            `json:"host"`
	Image          string            `json:"image"`
	Pull           Pull              `json:"pull"`
	VerifyKey      string            `json:"verify_key"`
	RegistryConfig string            `json:"registry_config"`
	Network        string            `json:"network"`
	Env            map[string]string `json:"env"`
	Kubeconfig     string            `json:"kubeconfig"`
	WritableRoot   bool              `json:"writable_root"`
	Node           map[string]any    `json:"node"`
}

// WithOptions returns cfg with the options of the shard's config on top: those of
// docs/providers/docker.md. Anything else is an error that names it.
func (cfg Config) WithOptions(values map[string]any) (Config, error) {
	o := options{
		Host: cfg.Host, Image: cfg.Image, Pull: cfg.Pull, VerifyKey: cfg.VerifyKey, RegistryConfig: cfg.RegistryConfig,
		Network: cfg.Network, Kubeconfig: cfg.Kubeconfig, WritableRoot: cfg.WritableRoot,
	}
	if wrong := provider.Decode("options", values, &o); len(wrong) > 0 {
		return Config{}, wrong
	}
	cfg.Host, cfg.Image, cfg.Network, cfg.Kubeconfig = o.Host, o.Image, o.Network, o.Kubeconfig
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

// CheckOptions reports, as FieldErrors, what is wrong with what WithOptions sets. It is
// pure: what is about this machine Validate adds.
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
	if cfg.Host != "" {
		if _, err := client.ParseHostURL(cfg.Host); err != nil {
			wrong.Addf("options.host", "%v: want an address such as unix:///var/run/docker.sock", err)
		}
	}
	if cfg.Node != nil {
		cfg.checkNode(&wrong)
	}
	return append(wrong, provider.CheckEnvironment("options.env", cfg.Env)...).Err()
}

// asks reports whether a registry is asked before an image is used that the engine has.
func (cfg Config) asks() bool { return cfg.VerifyKey != "" || cfg.Pull == PullAlways }

// checkImage reports an image that no registry could be asked for although one must be.
func (cfg Config) checkImage(wrong *provider.FieldErrors, field, image string) {
	if !cfg.asks() {
		return
	}
	if err := registry.Check(image); err != nil {
		reason := "options.pull is always"
		if cfg.VerifyKey != "" {
			reason = "options.verify_key is set, and the engine's own images can't be verified"
		}
		wrong.Addf(field, "%.200q is not valid where %s: it %v", image, reason, err)
	}
}

// covers reports whether what is mounted at a path and the agent's folder are one within
// the other.
func covers(at string) bool {
	return strings.HasPrefix(agentDir+"/", at+"/") || strings.HasPrefix(at+"/", agentDir+"/")
}

// checkNode reports what is wrong with options.node.
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
			wrong.Addf(field, "%.200q is not valid: want the absolute path of a folder in the container", at)
		case taken[at]:
			wrong.Addf(field, "%.200q is there twice: want each path once in volumes, tmpfs and binds", at)
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

// parseBind returns where in the container a bind is.
func parseBind(bind string) (at string, ok bool) {
	parts := strings.Split(bind, ":")
	if len(parts) == 3 && (parts[2] == "ro" || parts[2] == "rw") {
		parts = parts[:2]
	}
	return parts[len(parts)-1], len(parts) == 2 && path.IsAbs(parts[0])
}

// Validate reports every problem of cfg at once.
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
			bad("leader_network.ipv4 is %q: want an IPv4 address, which is all that can be moved here", l.IPv4)
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

// maxKeyFile bounds the file of a public key, in bytes.
const maxKeyFile = 64 << 10

// key reads the key that images have to be signed with; nil when none has to be.
func (cfg Config) key() (*signature.Key, error) {
	if cfg.VerifyKey == "" {
		return nil, nil
	}
	info, err := os.Stat(cfg.VerifyKey)
	if err != nil {
		return nil, fmt.Errorf("%w: options.verify_key: %w", provider.ErrInvalid, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return nil, fmt.Errorf("%w: options.verify_key: %s is no file of at most %d bytes: want a public key",
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
