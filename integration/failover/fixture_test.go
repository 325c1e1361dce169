//go:build integration

// Package failover tests that agents and callers notice only a pause when the leader of a shard
// fails. Two servers are containers of one shard, with one config; their agents are containers that
// they create; all dial one address, which moves.
package failover

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/nstance/nstance/integration/containers"
	"github.com/nstance/nstance/pkg/admin"
	shards "github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/object"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

var engine containers.Engine

const (
	shard  = "s1"
	bucket = "shared"
	size   = 4 // of the group

	lease = 10 * time.Second
	fence = time.Second
)

// config is the config of both servers.
const config = `{
  "cluster": { "id": "CLUSTER", "secrets": {
    "provider": "object-storage", "encryption_key": { "provider": "env", "source": "NSTANCE_ENCRYPTION_KEY" } } },
  "server": {
    "provider": { "kind": "docker", "region": "r", "zone": "z", "options": { "image": "IMAGE", "network": "NETWORK" } },
    "leader_network": { "ipv4": "ADDRESS", "interface_id": "NETWORK" },
    "advertise": { "registration_addr": "ADDRESS:8992", "operator_addr": "ADDRESS:8993", "agent_addr": "ADDRESS:8994" },
    "leader_election": { "renew_interval": "3s", "lease_duration": "LEASE", "fence_window": "FENCE" },
    "subnet_pools": { "workers": ["local"] },
    "default_drain_timeout": "1s",
    "create_backoff": { "settle": "1s", "max": "2s" },
    "health": { "report_interval": "2s", "missed_reports": 30, "shutdown_grace": "5s" },
  },
  "templates": { "knd": { "kind": "knd", "arch": "amd64", "subnet_pool": "workers" } },
  "groups": { "default": { "web": { "template": "knd", "size": SIZE } } },
}`

// fixture is a shard with two servers, and its callers.
type fixture struct {
	*containers.World
	store   *containers.Store
	core    containers.Network // servers and store
	agents  containers.Network // agents, and the leader's address
	address netip.Addr         // which follows the leader
	servers map[string]*containers.Container
	calls   *containers.Recorder
	ask     *admin.Client
	seen    *watch
}

func newFixture(t *testing.T) *fixture {
	w := engine.Begin(t, "failover")
	f := &fixture{World: w, servers: map[string]*containers.Container{}, calls: new(containers.Recorder)}
	images := w.Product("nstance-server", "nstance-agent")
	f.core, f.agents = w.Network("core"), w.Network("agents")
	f.address = f.agents.Address(100)
	f.store = w.MinIO("store", containers.At{Network: f.core, Nth: 10}, containers.Data{})
	text := strings.NewReplacer("CLUSTER", w.Cluster, "IMAGE", images["nstance-agent"],
		"NETWORK", f.agents.Name, "ADDRESS", f.address.String(),
		"LEASE", lease.String(), "FENCE", fence.String(), "SIZE", fmt.Sprint(size)).Replace(config)
	_, err := w.Bucket(f.store, bucket).Put(t.Context(), "config/"+shard+".jsonc", []byte(text), object.IfAbsent())
	w.Must(err)
	for n, name := range []string{"server-a", "server-b"} {
		f.servers[name] = w.Server(name, containers.At{Network: f.core, Nth: 20 + n}, containers.Server{
			Image: images["nstance-server"], Shard: shard, Store: f.store, Bucket: bucket, Socket: w.Socket(f.calls, name),
		})
	}
	f.leader()
	f.dial()
	return f
}

// at returns a client configuration with only the moving address.
func (f *fixture) at() []shards.Shard {
	return []shards.Shard{{ID: shard, Addrs: []string{netip.AddrPortFrom(f.address, 8993).String()}}}
}

// dial creates an operator's identity, and watches the shard with it until the test ends.
func (f *fixture) dial() {
	env := f.store.Env()
	env["NSTANCE_ENCRYPTION_KEY"] = containers.EncryptionKey
	cluster, err := admin.OpenCluster(f.Context(), admin.StorageConfig{
		Provider: "s3", Bucket: bucket, SecretsProvider: "object-storage", SecretsPrefix: "cluster/secret/",
		KeyProvider: "env", KeySource: "NSTANCE_ENCRYPTION_KEY",
	}, func(name string) string { return env[name] }, time.Now, rand.Reader)
	f.Must(err)
	dir := filepath.Join(f.Dir, "operator")
	_, err = cluster.RegisterOperator(f.Context(), "default", dir)
	f.Must(err)
	id, err := admin.LoadIdentity(dir, time.Now, rand.Reader)
	f.Must(err)
	f.ask = admin.NewClient(admin.Config{Identity: id, UserAgent: "integration", Random: mathrand.Float64})
	f.Cleanup(f.ask.Close)
	following := shards.New(shards.Config{TLS: id.TLS, UserAgent: "integration", Random: mathrand.Float64})
	f.Cleanup(following.Close)
	f.seen = &watch{phases: map[string][]string{}}
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := following.Watch(ctx, f.at(), []string{shards.WatchAllInstances}, f.seen.see); err != nil {
			f.Errorf("the watch ended: %v", err)
		}
	})
	f.Cleanup(func() { stop(); watching.Wait() })
}

// watch has the instances reported by one stream, which reconnects.
type watch struct {
	mu     sync.Mutex
	synced int
	phases map[string][]string // by instance, in their order
}

func (w *watch) see(e shards.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.Kind == shards.Synced:
		w.synced++
	case e.Kind == shards.Changed && e.Instance != nil:
		phase := e.Instance.GetPhase().String()
		if of := w.phases[e.Key]; len(of) == 0 || of[len(of)-1] != phase {
			w.phases[e.Key] = append(of, phase)
		}
	}
	return nil
}

func (w *watch) times() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced
}

// leader waits until one server leads and the other is its standby.
func (f *fixture) leader() (leads, other string) {
	f.Helper()
	f.Eventually(patience, "one server leads and one stands by", func(ctx context.Context) error {
		said := map[string]string{}
		for name, c := range f.servers {
			text, err := containers.Health(ctx, c.Address)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			said[text] = name
		}
		leads, other = said["leading"], said["standing by"]
		if leads == "" || other == "" {
			return fmt.Errorf("they say %v", said)
		}
		return nil
	})
	return leads, other
}

// running waits until the group is at size, with every agent connected and no create pending, and
// returns the instances.
func (f *fixture) running() []string {
	f.Helper()
	var ids []string
	f.Eventually(patience, "the group is at size and its agents are connected", func(ctx context.Context) error {
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		all, err := f.ask.ListInstances(within, f.at(), "web", false)
		if err != nil {
			return err
		}
		ids = nil
		for _, i := range all {
			if i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING || !i.GetConnected() {
				return fmt.Errorf("%s is %s, connected: %t (%s)", i.GetId(), i.GetPhase(), i.GetConnected(), i.GetReason())
			}
			ids = append(ids, i.GetId())
		}
		if len(ids) != size {
			return fmt.Errorf("%d run, want %d", len(ids), size)
		}
		return nil
	})
	slices.Sort(ids)
	return ids
}

// kill kills an instance's container, as when a machine dies.
func (f *fixture) kill(id string) {
	f.Helper()
	_, err := f.API.ContainerKill(f.Context(), "nstance-"+id, client.ContainerKillOptions{Signal: "KILL"})
	f.Must(err)
}
