package server_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/tracing"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

// guests are the real agents of machines, each with its own disk.
type guests struct {
	site *site
	root string

	server *process
	stop   map[fleet.InstanceID]context.CancelFunc
	under  sync.WaitGroup
	disk   func(fleet.InstanceID) error // puts on a new machine's disk what came with its image; nil: nothing
	calm   bool                         // reports are rare, where hours are simulated
	tracer *tracing.Tracer
}

// furnished is a shard whose instances get files of every kind.
func furnished(t *testing.T, groups string) *site {
	t.Helper()
	s := newSite(t)
	s.config["VARS"] = `{ "level": "info" }, "files": {
	  "app.conf": { "kind": "string", "content": "{{ .Vars.level }} {{ .Instance.Hostname }}" },
	  "app.env": { "kind": "env", "values": { "LEVEL": "{{ .Vars.level }}" } },
	  "node.env": { "kind": "env", "values": { "NSTANCE_NODE_PROVIDER_ID": "{{ .Instance.NodeProviderID }}" } },
	  "app.json": { "kind": "json", "content": { "shard": "{{ .Server.Shard }}" } },
	  "net.json": { "kind": "storage", "source": "files/net.json" },
	  "web.crt": { "kind": "certificate", "template": "web", "key": { "source": "agent", "name": "web" } },
	  "peer.crt": { "kind": "certificate", "template": "web", "key": { "source": "agent", "name": "peer", "algorithm": "ecdsa-p256" } }
	}`
	s.config["GROUPS"] = groups + ` }, "files": { "files/": { "tenants": ["*"] } }, "certificates": {
	  "web": { "tenants": ["*"], "kind": "server", "cn": "web", "organization": ["{{ .Instance.ID }}"],
	         "dns": ["{{ .Instance.Hostname }}"], "ttl": 24 }`
	s.put("files/net.json", `{"mtu":1500}`)
	s.putConfig(shardID)
	return s
}

// inhabit runs an agent on every machine that comes up.
func (s *site) inhabit(p *process, edits ...func(*guests)) *guests {
	s.t.Helper()
	g := &guests{site: s, root: s.t.TempDir(), server: p, stop: map[fleet.InstanceID]context.CancelFunc{}}
	for _, edit := range edits {
		edit(g)
	}
	p.awaitLeading()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(func() { cancel(); g.under.Wait() })
	g.under.Go(func() {
		s.whenever(ctx, func() bool {
			for _, vm := range s.world.VMs() {
				if vm.State == provider.StateRunning {
					g.boot(ctx, vm.ID)
				}
			}
			return true
		})
	})
	return g
}

// whenever calls look until ctx ends: after any machine changed its state, and again while
// look reports that it is not done. Listing all of them every 10 ms would be most of the cost
// of a long simulation.
func (s *site) whenever(ctx context.Context, look func() (done bool)) {
	for seen, again := uint64(0), true; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if now := s.world.Changes(); again || now != seen {
			seen, again = now, !look()
		}
	}
}

func (g *guests) boot(ctx context.Context, id fleet.InstanceID) {
	spec, ok := g.site.world.Spec(id)
	if g.stop[id] != nil || !ok {
		return
	}
	ctx, g.stop[id] = context.WithCancel(ctx)
	identity := g.path(id, "identity")
	err := errors.Join(os.MkdirAll(identity, 0o700),
		os.WriteFile(filepath.Join(identity, "ca.crt"), spec.Bootstrap.CACert, 0o600),
		os.WriteFile(filepath.Join(identity, "nonce.jwt"), []byte(spec.Bootstrap.Nonce), 0o600))
	if err == nil && g.disk != nil {
		err = g.disk(id)
	}
	if err != nil {
		g.site.t.Error(err)
	}
	interval := time.Second
	if g.calm {
		interval = time.Minute
	}
	g.under.Go(func() {
		_ = agent.Run(ctx, agent.Config{ // ends with ctx, or with the machine
			RegistrationAddrs: []string{g.server.registrationAddr()}, AgentAddrs: []string{g.server.agentAddr()},
			InstanceID: id, Kind: "knd", Hostname: string(id),
			IdentityDir: identity, KeysDir: g.path(id, "keys"), RecvDir: g.path(id, "recv"), IdentityMode: 0o600, KeysMode: 0o640, RecvMode: 0o640,
			ReportInterval: interval, SpotPollInterval: time.Hour, Provider: "none",
			Version: "test", Logger: slog.New(slog.DiscardHandler), Now: time.Now, Random: func() float64 { return 0 }, Entropy: rand.Reader,
			Sample: func(context.Context) *nstancev1.Resources { return nil }, Dialer: g.site.connect,
			Tracer: g.tracer,
		})
	})
}

func (g *guests) path(id fleet.InstanceID, parts ...string) string {
	return filepath.Join(append([]string{g.root, string(id)}, parts...)...)
}

// read returns a file that an instance received, or an error text.
func (g *guests) read(id fleet.InstanceID, name string) string {
	body, err := os.ReadFile(g.path(id, "recv", name))
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// awaitFile waits until a received file has the content.
func (g *guests) awaitFile(id fleet.InstanceID, name, want string) {
	g.site.t.Helper()
	eventually(g.site.t, name+" of "+string(id), func() error {
		if have := g.read(id, name); have != want {
			return fmt.Errorf("it is %q, want %q", have, want)
		}
		return nil
	})
}

// TestFiles: the files of a template are on every machine, and changes of a group reach them
// without replacing anything.
func TestFiles(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 2 } }`)
		p := s.start()
		g := s.inhabit(p)
		p.awaitSize("web", 2)
		ids := s.living()
		for _, id := range ids {
			g.awaitFile(id, "app.conf", "info "+string(id))
			g.awaitFile(id, "app.env", "LEVEL=info\n")
			g.awaitFile(id, "node.env", "NSTANCE_NODE_PROVIDER_ID="+p.nodeOf(id)+"\n")
			g.awaitFile(id, "app.json", "{\n  \"shard\": \"dev-1\"\n}\n")
			g.awaitFile(id, "net.json", `{"mtu":1500}`)
			for _, name := range []string{"web", "peer"} {
				g.checkCertificate(id, name)
			}
		}
		if log := s.keys("certlog/"); len(log) != 2 || !strings.HasPrefix(log[0], "certlog/dev-1/default.") {
			t.Errorf("logged %v", log)
		}

		vars, err := structpb.NewStruct(map[string]any{"level": "debug"})
		if err != nil {
			t.Fatal(err)
		}
		before := g.hashOf(p, ids[0])
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Vars: vars}); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			g.awaitFile(id, "app.conf", "debug "+string(id))
		}
		eventually(t, "the new hash is reported", func() error {
			if h := g.hashOf(p, ids[0]); h == before || h == "" || h != firstLine(g.read(ids[0], "config.hash")) {
				return fmt.Errorf("it is %q, before it was %q, the machine has %q", h, before, g.read(ids[0], "config.hash"))
			}
			return nil
		})
		if have := s.living(); !slices.Equal(have, ids) {
			t.Errorf("%v live, before it was %v", have, ids)
		}
		if log := s.keys("certlog/"); len(log) != 2 {
			t.Errorf("certificates were issued anew: %v", log)
		}

		// A deleted file, and a changed object.
		if err := os.Remove(g.path(ids[0], "recv", "app.env")); err != nil {
			t.Fatal(err)
		}
		s.put("files/net.json", `{"mtu":9000}`)
		if _, err := p.operator("default").RefreshConfig(within(t), &nstancev1.RefreshConfigRequest{}); err != nil {
			t.Fatal(err)
		}
		g.awaitFile(ids[0], "app.env", "LEVEL=debug\n")
		g.awaitFile(ids[1], "net.json", `{"mtu":9000}`)
	})
}

// nodeOf returns the provider ID that an instance's Node must have, as operators are told.
func (p *process) nodeOf(id fleet.InstanceID) string {
	p.t.Helper()
	i, err := p.instance(id)
	if err != nil || i.GetNodeProviderId() == "" {
		p.t.Fatalf("instance %s: no provider ID of its node: %v, %v", id, i, err)
	}
	return i.GetNodeProviderId()
}

func (g *guests) hashOf(p *process, id fleet.InstanceID) string {
	i, err := p.instance(id)
	if err != nil {
		g.site.t.Error(err)
	}
	return i.GetConfigHash()
}

// checkCertificate checks that a certificate is valid for its instance and for the key that
// never left it.
func (g *guests) checkCertificate(id fleet.InstanceID, name string) {
	t := g.site.t
	t.Helper()
	pair, err := tls.LoadX509KeyPair(g.path(id, "recv", name+".crt"), g.path(id, "keys", name+".key"))
	if err != nil {
		t.Error(err)
		return
	}
	roots := x509.NewCertPool()
	roots.AddCert(g.site.trust().CA.Certificate())
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: string(id),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		t.Error(err)
	}
	if !slices.Equal(pair.Leaf.Subject.Organization, []string{string(id)}) {
		t.Errorf("the certificate is for %s", pair.Leaf.Subject)
	}
	if _, err := pki.ParseCaller(pair.Leaf, clusterID); err == nil {
		t.Error("it passes for a member of the cluster")
	}
}

// TestFilesOfTenants: groups with one name, each with its own tenant's files.
func TestFilesOfTenants(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 1 } },
		"prod": { "web": { "template": "knd", "size": 1, "vars": { "level": "warn" } } }`)
		p := s.start()
		g := s.inhabit(p)
		p.awaitSize("web", 1)
		eventually(t, "both have their files", func() error {
			var have []string
			for _, r := range s.records() {
				level, _, _ := strings.Cut(g.read(r.ID, "app.conf"), " ")
				have = append(have, r.Tenant+" "+level)
			}
			slices.Sort(have)
			if !slices.Equal(have, []string{"default info", "prod warn"}) {
				return fmt.Errorf("they have %q", have)
			}
			return nil
		})
		log := s.keys("certlog/dev-1/")
		if len(log) != 2 || !strings.Contains(log[0], "/default.") || !strings.Contains(log[1], "/prod.") {
			t.Errorf("logged %v", log)
		}
	})
}

// TestFilesFail: a file that can't be rendered is a problem of the group, until it can. Until then its instances
// are not ready.
func TestFilesFail(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 1 } }`)
		if err := s.inner.Delete(context.Background(), "files/net.json"); err != nil {
			t.Fatal(err)
		}
		p := s.start()
		g := s.inhabit(p)
		p.awaitWithoutFiles("web")
		problem := func() string {
			status, err := p.group("web")
			if err != nil {
				return err.Error()
			}
			for _, c := range status.GetConditions() {
				if strings.Contains(c.GetMessage(), "net.json") {
					return c.GetMessage()
				}
			}
			return ""
		}
		eventually(t, "the group says so", func() error {
			if have := problem(); have != "file net.json: object files/net.json does not exist" {
				return fmt.Errorf("it says %q", have)
			}
			return nil
		})
		id := s.living()[0]
		if have := g.read(id, "app.conf"); !strings.Contains(have, "no such file") {
			t.Errorf("it received %q", have)
		}
		s.put("files/net.json", "{}")
		if _, err := p.operator("default").RefreshConfig(within(t), &nstancev1.RefreshConfigRequest{}); err != nil {
			t.Fatal(err)
		}
		g.awaitFile(id, "net.json", "{}")
		p.awaitSize("web", 1)
		eventually(t, "the problem is over", func() error {
			if have := problem(); have != "" {
				return errors.New(have)
			}
			return nil
		})
	})
}

// awaitWithoutFiles waits until a group says that instances lack their files.
func (p *process) awaitWithoutFiles(key string) {
	p.t.Helper()
	eventually(p.t, "group "+key+" awaits files", func() error {
		group, err := p.group(key)
		if ready := condition(group, "Ready"); err == nil && ready.GetReason() != "AwaitingFiles" {
			err = fmt.Errorf("it says %v", ready)
		}
		return err
	})
}

// degraded returns the message of a group's condition Degraded; empty if there is none.
func (p *process) degraded(key string) string {
	p.t.Helper()
	group, err := p.group(key)
	if err != nil {
		p.t.Fatal(err)
	}
	return condition(group, "Degraded").GetMessage()
}

// TestRotationAwaitsFiles: instances that work stay while their replacements can't get their files.
func TestRotationAwaitsFiles(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 2 } }`)
		p := s.start()
		s.inhabit(p, func(g *guests) { g.calm = true })
		p.awaitSize("web", 2)
		before := s.living()
		if err := s.inner.Delete(context.Background(), "files/net.json"); err != nil {
			t.Fatal(err)
		}
		p.refreshes(unchanged)
		p.awaitNewestFiles("web", 0)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", InstanceType: new("large")}); err != nil {
			t.Fatal(err)
		}
		p.awaitWithoutFiles("web")
		for range 20 {
			if d := p.degraded("web"); d != "file net.json: object files/net.json does not exist" {
				t.Fatalf("the group is degraded: %q", d)
			}
			time.Sleep(time.Minute)
		}
		for _, id := range before {
			if !slices.Contains(s.living(), id) {
				t.Errorf("%s was replaced by an instance without files", id)
			}
		}
		p.awaitWithoutFiles("web")
		s.put("files/net.json", "{}")
		p.refreshes(unchanged)
		eventually(t, "the rotation is done", func() error {
			g, err := p.group("web")
			if err == nil && (g.GetUpToDateSize() != 2 || g.GetPendingSize()+g.GetDrainingSize() > 0) {
				err = fmt.Errorf("the group is %v", g)
			}
			return err
		})
		p.awaitNewestFiles("web", 2)
	})
}

// awaitNewestFiles waits until so many of a group's instances have the newest version of their files.
func (p *process) awaitNewestFiles(key string, want int32) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%d instances of group %s have their newest files", want, key), func() error {
		g, err := p.group(key)
		if have := g.GetFilesUpToDateSize(); err == nil && have != want {
			err = fmt.Errorf("%d have", have)
		}
		return err
	})
}

// TestNonceHash: a nonce has the hash of the instance's files.
func TestNonceHash(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 1 } }`)
		p := s.start()
		g := s.inhabit(p)
		p.awaitSize("web", 1)
		id := s.living()[0]
		spec, _ := s.world.Spec(id)
		claims, err := nonce.Verify(pki.PublicKey(s.trust().NonceKey), spec.Bootstrap.Nonce,
			nonce.Want{Kind: nonce.KindAgent, ClusterID: clusterID, Shard: shardID}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the hash is there", func() error {
			if have := firstLine(g.read(id, "config.hash")); have != claims.ConfigHash {
				return fmt.Errorf("the nonce says %q, the machine has %q", claims.ConfigHash, have)
			}
			return nil
		})
	})
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
