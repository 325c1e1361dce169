// Package docker is a provider whose machines are containers of the agent's
// image on one engine, local, rootless or remote.
//
// A container is named for its instance, so that the engine itself holds a
// second create of the same id back; the loser looks at what there is and takes
// it on. Labels are the tags, and the only record. A create is four steps:
// create the container, copy the agent's first files into it, start it, look at
// it. Whoever finds a container that was created and never started repeats the
// rest, so a crash in between costs nothing but another Create.
//
// Containers are never restarted by the engine: an agent that ended is replaced
// by a new instance.
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

// agentDir is where the agent keeps its files inside a container.
const agentDir = "/opt/nstance-agent"

// Labels that the provider adds to the tags.
const (
	labelHostname = "nstance:hostname"
	labelSubnet   = "nstance:subnet"
	// labelServer marks the containers of servers, as opposed to instances; its
	// value is true. With the cluster and shard tags it tells the servers that
	// may take the leader's address from each other.
	labelServer = "nstance:server"
)

// Config says which engine makes the containers, and how.
type Config struct {
	Scope provider.Scope
	// Host is the engine's address, such as unix:///run/user/1000/docker.sock;
	// empty: as DOCKER_HOST and its siblings say.
	Host string
	// Image is the agent's image.
	Image string
	// Pull says when a registry is asked for an image; empty: PullMissing.
	Pull Pull
	// VerifyKey is the path of the public key that has to have signed every image;
	// empty: none has to be signed.
	VerifyKey string
	// RegistryConfig is the path of the docker config.json with the registries'
	// passwords; empty: that of whoever runs this process.
	RegistryConfig string
	// Network is what containers join unless their args say otherwise; empty:
	// the engine's default.
	Network string
	// Env is added to every agent's environment.
	Env map[string]string
	// Kubeconfig is the way to an API server that is to have a Node for each
	// container, which whoever opens the provider sees to; empty: none.
	Kubeconfig string
	// WritableRoot leaves agents the root of their file system to write to.
	WritableRoot bool
	// Node is what containers are like that are whole machines; nil: there are none.
	Node *Node
	// Leader moves an address between the servers; nil: nothing to move.
	Leader *Leader
	Logger *slog.Logger
	// Now is the time; nil: time.Now.
	Now func() time.Time
}

// Leader is the address that the leading server has on a user-defined network.
// The network is the address's own: a server that leads has no other address
// there.
type Leader struct {
	Network string
	IPv4    netip.Addr
	Self    string // this server's container, by name or id; empty: the host's name, which in a container is its id
}

// Default returns the settings that an empty options object stands for.
func Default(scope provider.Scope, logger *slog.Logger) Config {
	return Config{Scope: scope, Logger: logger}
}

// Provider makes containers. It is safe for concurrent use, also beside other
// Providers of the same engine.
type Provider struct {
	cfg    Config
	api    *client.Client
	images *images
	gap    gap
	leader *leaderNetwork // nil: no address to move
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Watcher  = (*Provider)(nil)

	_ provider.ArgsChecker     = (*Provider)(nil)
	_ provider.ArgsChecker     = Config{} // before there is a Provider
	_ provider.ConsistentReads = (*Provider)(nil)
)

// ConsistentReads implements provider.ConsistentReads: the engine answers from
// what it holds itself.
func (p *Provider) ConsistentReads() bool { return true }

// New checks cfg, and reads the key. It does not call the engine: one that is down is
// temporary.
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

// Close gives up the connections to the engine, and pulls that are under way.
// Containers live on. It may be called more than once.
func (p *Provider) Close() {
	p.images.close()
	_ = p.api.Close() // idle connections only
}

// connect returns a client of the engine at host, or of the environment's.
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

// Ping reports why no engine answers at host (empty: as the environment says).
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

// containerID is what the engine calls a container. Whatever else it is asked
// for it takes as a name or as the beginning of an id.
var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// nameOf is the name of an instance's container.
func nameOf(id fleet.InstanceID) string { return "nstance-" + string(id) }
