package server

import (
	"log/slog"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/provider"
)

// dockerOpening is for an engine that is not there, which opening one does not need.
func dockerOpening(leader config.LeaderNetwork) Opening {
	return Opening{
		Scope: provider.Scope{ClusterID: "c", Shard: "s"},
		Provider: config.Provider{Kind: config.ProviderDocker, Options: map[string]any{
			"image": "agent:1", "host": "tcp://127.0.0.1:1",
		}},
		Leader: leader, Self: "server-1",
	}
}

// TestAcceptedRunsOn: what only new texts are refused for.
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
