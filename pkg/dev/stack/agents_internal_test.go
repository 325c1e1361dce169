package stack

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// IDs of agents.
const (
	one = "knd01m7y23z9me5h9rh8r505a17w9"
	two = "knd01m7y23z9me5h9rh8r505a17wa"
)

// sleeping returns the config of a stack in a new folder, whose agents are processes that do nothing.
func sleeping(t *testing.T) Config {
	t.Helper()
	temp := t.TempDir()
	cfg := Config{
		Bin: filepath.Join(temp, "bin"), Temp: temp, Provider: "process", Out: io.Discard,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if err := os.MkdirAll(filepath.Join(temp, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(cfg.Bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cfg.agentBinary(), []byte("#!/bin/sh\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// createAgent creates an agent of dev-2 as its server does.
func createAgent(t *testing.T, cfg Config, id fleet.InstanceID) provider.VM {
	t.Helper()
	server, err := openProvider(cfg, "dev-2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	vm, err := server.Create(t.Context(), provider.Spec{
		ID: id, Hostname: string(id), Tags: scopeOf("dev-2").Tags(fleet.Instance{ID: id, Tenant: "default", Group: "web"}),
		Bootstrap: provider.Bootstrap{
			CACert: []byte("ca"), Nonce: "nonce", ReportInterval: time.Minute,
			RegistrationAddrs: []string{"127.0.0.1:1"}, AgentAddrs: []string{"127.0.0.1:1"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// agents returns the states of dev-2's agents.
func agents(t *testing.T, cfg Config) (states []provider.State) {
	t.Helper()
	p, err := openProvider(cfg, "dev-2")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	vms, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, vm := range vms {
		states = append(states, vm.State)
	}
	return states
}

// TestEndedAgentsAreKnown: agents that the bucket has records of stay known as stopped, through every
// cleaning, until the bucket is wiped.
func TestEndedAgentsAreKnown(t *testing.T) {
	cfg := sleeping(t)
	if err := recordProvider(cfg); err != nil {
		t.Fatal(err)
	}
	vm := createAgent(t, cfg, one)
	records := filepath.Join(cfg.Temp, "dev-s3", "instance", "dev-2")
	if err := os.MkdirAll(records, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(records, string(vm.ID)+".json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Clean(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if have := agents(t, cfg); len(have) != 1 || have[0] != provider.StateStopped {
			t.Fatalf("agents are %v", have)
		}
	}
	leaves := createAgent(t, cfg, two) // a deletion that had begun goes on
	if err := os.WriteFile(filepath.Join(cfg.Temp, "agents", "dev-2", leaves.ProviderID, "deleting"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Clean(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if have := agents(t, cfg); len(have) != 1 || have[0] != provider.StateStopped {
		t.Fatalf("agents are %v", have)
	}
	createAgent(t, cfg, two)
	if err := os.RemoveAll(filepath.Join(cfg.Temp, "dev-s3")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Clean(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if have := agents(t, cfg); len(have) != 0 {
			t.Fatalf("agents are %v", have)
		}
	}
	if _, err := os.Stat(providerFile(cfg)); !os.IsNotExist(err) {
		t.Errorf("the provider is still noted: %v", err)
	}
}
