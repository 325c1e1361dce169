package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/provider"
)

// dockerOpening is for an engine that does not exist, which opening one does not need.
func dockerOpening(leader config.LeaderNetwork) Opening {
	return Opening{
		Scope: provider.Scope{ClusterID: "c", Shard: "s"},
		Provider: config.Provider{Kind: config.ProviderDocker, Options: map[string]any{
			"image": "agent:1", "host": "tcp://127.0.0.1:1",
		}},
		Leader: leader, Self: "server-1",
	}
}

// TestDockerMovesTheLeadersAddress: the real provider gets the configured address and the
// container to give it to.
func TestDockerMovesTheLeadersAddress(t *testing.T) {
	for name, c := range map[string]struct {
		leader config.LeaderNetwork
		moves  bool
	}{
		"no address":              {config.LeaderNetwork{}, false},
		"moved by something else": {config.LeaderNetwork{IPv4: "10.0.0.9"}, false},
		"moved by the provider":   {config.LeaderNetwork{IPv4: "10.0.0.9", InterfaceID: "net"}, true},
		"accepted, with an IPv6":  {config.LeaderNetwork{IPv4: "10.0.0.9", IPv6: "fd00::9", InterfaceID: "net"}, true},
		"accepted, with one only": {config.LeaderNetwork{IPv6: "fd00::9", InterfaceID: "net"}, false},
	} {
		p, err := newProvider(t.Context(), Config{Logger: slog.New(slog.DiscardHandler)}, dockerOpening(c.leader))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		network, ok := provider.LeaderNetworkOf(p)
		if ok != c.moves {
			t.Errorf("%s: moves an address: %v", name, ok)
		}
		if !ok {
			continue
		}
		if _, err := network.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "server container server-1") {
			t.Errorf("%s: looked at another container than this server's: %v", name, err)
		}
	}
}

// TestAcceptedRunsOn: checks for new texts only.
func TestAcceptedRunsOn(t *testing.T) {
	cfg := Config{Logger: slog.New(slog.DiscardHandler)}
	processes := config.Provider{Kind: config.ProviderProcess, Options: map[string]any{"dir": "/d", "agent": "/a"}}
	containers := dockerOpening(config.LeaderNetwork{}).Provider
	for path, server := range map[string]config.Server{
		"server.leader_network.interface_id": {Provider: processes, LeaderNetwork: config.LeaderNetwork{IPv4: "10.0.0.9", InterfaceID: "net"}},
		"server.leader_network.ipv6": {
			Provider: containers, LeaderNetwork: config.LeaderNetwork{IPv4: "10.0.0.9", IPv6: "fd00::9", InterfaceID: "net"},
		},
		"server.provider.options.image": {Provider: config.Provider{Kind: config.ProviderDocker}},
	} {
		shard := &config.Shard{Server: server}
		if err := cfg.checkShard(shard); err != nil {
			t.Errorf("%s: what was accepted is refused: %v", path, err)
		}
		if wrong := cfg.checks(shard, nil).Server(server); len(wrong) != 1 || wrong[0].Path != path {
			t.Errorf("%s: a new text: %v", path, wrong)
		}
	}
}
