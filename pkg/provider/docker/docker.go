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
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"regexp"

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
	// Image is the agent's image, which the engine has to have already.
	Image string
	// Network is what containers join unless their args say otherwise; empty:
	// the engine's default.
	Network string
	// Env is added to every agent's environment.
	Env map[string]string
	// Kubeconfig is the way to an API server that is to have a Node for each
	// container, which whoever opens the provider sees to; empty: none.
	Kubeconfig string
	// Leader moves an address between the servers; nil: nothing to move.
	Leader *Leader
	Logger *slog.Logger
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

// options are the provider's options in the shard's config.
type options struct {
	Host       string            `json:"host"`
	Image      string            `json:"image"`
	Network    string            `json:"network"`
	Env        map[string]string `json:"env"`
	Kubeconfig string            `json:"kubeconfig"`
}

// WithOptions returns cfg with the options of the shard's config on top: host,
// image, network, kubeconfig, and env (an object of strings). Anything else is an error that
// names it.
func (cfg Config) WithOptions(values map[string]any) (Config, error) {
	o := options{Host: cfg.Host, Image: cfg.Image, Network: cfg.Network, Kubeconfig: cfg.Kubeconfig}
	if wrong := provider.Decode("options", values, &o); len(wrong) > 0 {
		return Config{}, wrong
	}
	cfg.Host, cfg.Image, cfg.Network, cfg.Kubeconfig = o.Host, o.Image, o.Network, o.Kubeconfig
	if o.Env != nil {
		cfg.Env = o.Env
	}
	return cfg, nil
}

// CheckOptions reports, as FieldErrors, what is wrong with what WithOptions sets. It is
// pure: what is about this machine Validate adds.
func (cfg Config) CheckOptions() error {
	var wrong provider.FieldErrors
	if cfg.Image == "" {
		wrong.Addf("options.image", "required: want the agent's image")
	}
	if cfg.Host != "" {
		if _, err := client.ParseHostURL(cfg.Host); err != nil {
			wrong.Addf("options.host", "%v: want an address such as unix:///var/run/docker.sock", err)
		}
	}
	return append(wrong, provider.CheckEnvironment("options.env", cfg.Env)...).Err()
}

// Validate reports every problem of cfg at once.
func (cfg Config) Validate() error {
	problems := []error{cfg.Scope.Check(), cfg.CheckOptions()}
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
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

// Provider makes containers. It is safe for concurrent use, also beside other
// Providers of the same engine.
type Provider struct {
	cfg    Config
	api    *client.Client
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

// New checks cfg. It does not call the engine: one that is down is temporary.
func New(cfg Config) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the docker provider: %w", err)
	}
	api, err := connect(cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("configure the docker provider: %w", err)
	}
	p := &Provider{cfg: cfg, api: api}
	if cfg.Leader != nil {
		p.leader = &leaderNetwork{p: p, l: *cfg.Leader}
		if p.leader.l.Self == "" {
			p.leader.l.Self, err = os.Hostname()
		}
	}
	return p, err
}

// Close gives up the connections to the engine. Containers live on. It may be
// called more than once.
func (p *Provider) Close() {
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
