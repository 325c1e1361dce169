// Package docker is a provider whose VMs are containers of the agent image on one engine,
// local, rootless or remote.
//
// Containers are named after their instance, so the engine itself refuses a second create of
// the same ID; the loser adopts the existing container. Labels are the tags and the only
// record. A create has four steps: create the container, copy the agent's first files into it,
// start it, inspect it. For a container that was created but never started the remaining steps
// are repeated, so a crash in between costs only another Create.
//
// The engine never restarts containers: an agent that ended is replaced by a new instance.
package docker

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"regexp"
	"time"

	"github.com/docker/docker/client"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// AgentUser is the uid and gid that agents run as.
const AgentUser = 65532

// agentDir is the agent's folder inside a container.
const agentDir = "/opt/nstance-agent"

// Labels that the provider adds to the tags.
const (
	labelHostname    = "nstance:hostname"
	labelEngineScope = "nstance:engine-scope"
	labelSubnet      = "nstance:subnet"
	// labelServer marks the containers of servers, as opposed to instances; its value is true.
	// Together with the cluster and shard tags it identifies the servers that may take the
	// leader's address from each other.
	labelServer = "nstance:server"
)

// Config is the configuration of a Provider.
type Config struct {
	Scope provider.Scope
	// EngineScope distinguishes this server's containers from those of another server of the same
	// cluster and shard on this engine; empty: none.
	EngineScope string
	// Host is the engine's address, such as unix:///run/user/1000/docker.sock; empty: from
	// DOCKER_HOST and related variables.
	Host string
	// Image is the agent's image.
	Image string
	// Images lists patterns of the repositories, as for registry.Match, that args may use
	// besides those of Image and Node.Image.
	Images []string
	// Pull is the pull policy; empty: PullMissing.
	Pull Pull
	// VerifyKey is the path of the public key that must have signed every image; empty: images
	// need no signature.
	VerifyKey string
	// RegistryConfig is the path of the docker config.json with registry passwords; empty: that
	// of the user running this process.
	RegistryConfig string
	// Network is the containers' network unless args override it; empty: the engine's default.
	Network string
	// Networks lists the networks that args may use besides Network.
	Networks []string
	// Env is added to every agent's environment.
	Env map[string]string
	// ArgsEnv lists the variables that args may set besides provider.OpenVariables: names, or
	// prefixes followed by a star.
	ArgsEnv []string
	// WritableRoot makes the agents' root file system writable.
	WritableRoot bool
	// Node configures containers that are whole machines; nil: none.
	Node *Node
	// Leader is the leader's address; nil: none.
	Leader *Leader
	Logger *slog.Logger
	// Now returns the time; nil: time.Now.
	Now func() time.Time
}

// Leader is the leader's address on a user-defined network. The network is dedicated to it: the
// leading server has no other address there.
type Leader struct {
	Network string
	IPv4    netip.Addr
	Self    string // name or ID of this server's container; empty: the hostname, which in a container is its ID
}

// Default returns the default settings, as for an empty options object.
func Default(scope provider.Scope, logger *slog.Logger) Config {
	return Config{Scope: scope, Logger: logger}
}

// Provider is a provider of containers. It is safe for concurrent use, also with other
// Providers of the same engine.
type Provider struct {
	cfg    Config
	api    *client.Client
	images *images
	gap    gap
	leader *leaderNetwork // nil: no leader address
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Watcher  = (*Provider)(nil)

	_ provider.ArgsChecker     = (*Provider)(nil)
	_ provider.ArgsChecker     = Config{} // usable without a Provider
	_ provider.ConsistentReads = (*Provider)(nil)
)

// ConsistentReads implements provider.ConsistentReads: the engine answers from its own state.
func (p *Provider) ConsistentReads() bool { return true }

// New validates cfg and reads the key. It does not call the engine: an unreachable engine is a
// temporary error.
func New(cfg Config) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the docker provider: %w", err)
	}
	key, err := cfg.key()
	if err != nil {
		return nil, fmt.Errorf("configure the docker provider: %w", err)
	}
	api, err := connect(cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("configure the docker provider: %w", err)
	}
	p := &Provider{cfg: cfg, api: api, images: newImages(cfg, api, key)}
	if cfg.Leader != nil {
		p.leader = &leaderNetwork{p: p, l: *cfg.Leader}
		if p.leader.l.Self == "" {
			p.leader.l.Self, err = os.Hostname()
		}
	}
	return p, err
}

// Close closes the connections to the engine and cancels pulls. Containers live on. Idempotent.
func (p *Provider) Close() {
	p.images.close()
	_ = p.api.Close() // idle connections only
}

// connect returns a client of the engine at host; empty: as the environment configures.
func connect(host string) (*client.Client, error) {
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	api, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, fmt.Errorf("%w: options.host: %w", provider.ErrInvalid, err)
	}
	return api, nil
}

// Ping returns an error if no engine answers at host (empty: as the environment configures).
func Ping(ctx context.Context, host string) error {
	api, err := connect(host)
	if err != nil {
		return err
	}
	defer func() { _ = api.Close() }() // idle connections only
	if _, err := api.Ping(ctx); err != nil {
		return fmt.Errorf("reach the engine at %s: %w", api.DaemonHost(), err)
	}
	return nil
}

// containerID matches the engine's container IDs. The engine takes anything else as a name or
// an ID prefix.
var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// nameOf returns the name of an instance's container.
func nameOf(id fleet.InstanceID) string { return "nstance-" + string(id) }
