//go:build integration

// Package failover tells what agents and callers notice when the leader of a shard
// fails: nothing but a pause. Two servers are containers of one shard, with one config;
// their agents are containers that they make; all dial one address, which moves.
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
)

var engine containers.Engine

const (
	shard  = "s1"
	bucket = "shared"
	size   = 4 // of the group

	lease = 10 * time.Second
	fence = time.Second
)

// config is that of both servers.
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

// scene is a shard with two servers, and whoever asks it.
type scene struct {
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

func begin(t *testing.T) *scene {
	w := engine.Begin(t, "failover")
	s := &scene{World: w, servers: map[string]*containers.Container{}, calls: new(containers.Recorder)}
	images := w.Product("nstance-server", "nstance-agent")
	s.core, s.agents = w.Network("core"), w.Network("agents")
	s.address = s.agents.Address(100)
	s.store = w.MinIO("store", containers.At{Network: s.core, Nth: 10}, containers.Data{})
	text := strings.NewReplacer("CLUSTER", w.Cluster, "IMAGE", images["nstance-agent"],
		"NETWORK", s.agents.Name, "ADDRESS", s.address.String(),
		"LEASE", lease.String(), "FENCE", fence.String(), "SIZE", fmt.Sprint(size)).Replace(config)
	_, err := w.Bucket(s.store, bucket).Put(t.Context(), "config/"+shard+".jsonc", []byte(text), object.IfAbsent())
	w.Must(err)
	for n, name := range []string{"server-a", "server-b"} {
		s.servers[name] = w.Server(name, containers.At{Network: s.core, Nth: 20 + n}, containers.Server{
			Image: images["nstance-server"], Shard: shard, Store: s.store, Bucket: bucket, Socket: w.Socket(s.calls, name),
		})
	}
	s.leader()
	s.dial()
	return s
}

// at is a way to the shard that knows the one address only.
func (s *scene) at() []shards.Shard {
	return []shards.Shard{{ID: shard, Addrs: []string{netip.AddrPortFrom(s.address, 8993).String()}}}
}

// dial makes an operator's identity, and watches the shard with it until the test ends.
func (s *scene) dial() {
	env := s.store.Env()
	env["NSTANCE_ENCRYPTION_KEY"] = containers.EncryptionKey
	cluster, err := admin.OpenCluster(s.Context(), admin.StorageConfig{
		Provider: "s3", Bucket: bucket, SecretsProvider: "object-storage", SecretsPrefix: "cluster/secret/",
		KeyProvider: "env", KeySource: "NSTANCE_ENCRYPTION_KEY",
	}, func(name string) string { return env[name] }, time.Now, rand.Reader)
	s.Must(err)
	dir := filepath.Join(s.Dir, "operator")
	_, err = cluster.RegisterOperator(s.Context(), "default", dir)
	s.Must(err)
	id, err := admin.LoadIdentity(dir, time.Now, rand.Reader)
	s.Must(err)
	s.ask = admin.NewClient(admin.Config{Identity: id, UserAgent: "integration", Random: mathrand.Float64})
	s.Cleanup(s.ask.Close)
	following := shards.New(shards.Config{TLS: id.TLS, UserAgent: "integration", Random: mathrand.Float64})
	s.Cleanup(following.Close)
	s.seen = &watch{phases: map[string][]string{}}
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := following.Watch(ctx, s.at(), []string{shards.WatchAllInstances}, s.seen.see); err != nil {
			s.Errorf("the watch ended: %v", err)
		}
	})
	s.Cleanup(func() { stop(); watching.Wait() })
}

// watch is what one stream, which reconnects, told of instances.
type watch struct {
	mu     sync.Mutex
	synced int
	phases map[string][]string // by instance, as they followed each other
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

// leader waits until one server leads and the other stands by.
func (s *scene) leader() (leads, other string) {
	s.Helper()
	s.Eventually(patience, "one server leads and one stands by", func(ctx context.Context) error {
		said := map[string]string{}
		for name, c := range s.servers {
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

// running waits until the group is at size, with every agent connected and nobody on the
// way, and returns the instances.
func (s *scene) running() []string {
	s.Helper()
	var ids []string
	s.Eventually(patience, "the group is at size and its agents are connected", func(ctx context.Context) error {
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		all, err := s.ask.ListInstances(within, s.at(), "web", false)
		if err != nil {
			return err
		}
		ids = nil
		for _, i := range all {
			if i.Phase != "running" || !i.Connected {
				return fmt.Errorf("%s is %s, connected: %t (%s)", i.ID, i.Phase, i.Connected, i.Reason)
			}
			ids = append(ids, i.ID)
		}
		if len(ids) != size {
			return fmt.Errorf("%d run, want %d", len(ids), size)
		}
		return nil
	})
	slices.Sort(ids)
	return ids
}

// kill ends an instance's container, as a machine dies.
func (s *scene) kill(id string) {
	s.Helper()
	_, err := s.API.ContainerKill(s.Context(), "nstance-"+id, client.ContainerKillOptions{Signal: "KILL"})
	s.Must(err)
}
