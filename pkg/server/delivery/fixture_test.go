package delivery_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// Files of every kind, and their inputs.
const (
	allKinds = `
	  "app.conf": { "kind": "string", "content": "level={{ .Vars.level }} on {{ .Instance.Hostname }}" },
	  "app.env": { "kind": "env", "values": { "LEVEL": "{{ .Vars.level }}", "N": 3 } },
	  "app.json": { "kind": "json", "content": { "level": "{{ .Vars.level }}", "list": [1, "<>"] } },
	  "db.conf": { "kind": "secret", "source": "db" },
	  "k.crt": { "kind": "certificate", "template": "k", "key": { "source": "agent", "name": "k" } },
	  "net.json": { "kind": "storage", "source": "files/net.json" }`
	certificate = `"k.crt": { "kind": "certificate", "template": "k", "key": { "source": "agent", "name": "k" } }`
	plain       = `"app.conf": { "kind": "string", "content": "level={{ .Vars.level }}" }`
)

// fixture is everything that a delivery uses: a config, records, a store and secrets.
type fixture struct {
	t         testing.TB
	ctx       context.Context
	inner     *mem.Store
	lists     *objecttest.Listing // over inner
	store     *objecttest.Counting
	ca        *pki.CA
	d         *delivery.Delivery
	templates *config.Templates

	mu         sync.Mutex
	static     *config.Shard
	groups     map[fleet.GroupKey]fleet.Group
	instances  map[fleet.InstanceID]fleet.Instance
	secrets    map[string]string
	reads      int // of secrets
	noSecrets  error
	noLog      error
	noPermit   error
	noBind     error
	delivering map[fleet.InstanceID]bool
	owners     map[string]fleet.InstanceID // of claimed keys
	bound      map[string]fleet.InstanceID // of recorded ones
	problems   []fleet.Problem
	settled    []fleet.GroupKey
	number     int
}

// newFixture starts a delivery for a shard whose template has the files. It must be called
// within a bubble.
func newFixture(t *testing.T, files string) *fixture {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); synctest.Wait() })
	return newFixtureIn(t, ctx, files)
}

func newFixtureIn(t testing.TB, ctx context.Context, files string) *fixture { //nolint:revive // ctx is the term's
	t.Helper()
	inner := mem.New(mem.Config{HashETags: true})
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA(pki.CAConfig{Cluster: "c", Key: key, Now: time.Now(), Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	lists := objecttest.NewListing(inner)
	f := &fixture{
		t: t, ctx: ctx, templates: config.NewTemplates(), inner: inner, lists: lists, store: objecttest.NewCounting(lists), ca: ca,
		instances: map[fleet.InstanceID]fleet.Instance{}, secrets: map[string]string{"db": "password"},
		owners: map[string]fleet.InstanceID{}, bound: map[string]fleet.InstanceID{},
	}
	f.put("files/net.json", `{"mtu": 1500}`)
	f.define(files, "info")
	f.d = f.newDelivery()
	return f
}

// newDelivery returns a delivery of a new term.
func (f *fixture) newDelivery() *delivery.Delivery {
	f.t.Helper()
	l, err := ledger.Open(ledger.Config{Store: f.store, Shard: "dev-1", Writer: "w", Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.t.Fatal(err)
	}
	d, err := delivery.New(f.ctx, delivery.Config{
		Shard: f, CA: f.ca, Secrets: f, Storage: f.store, Permit: f.permit, Claim: f.claim, Bind: f.bind,
		Log: func(ctx context.Context, b ledger.CertificateBatch) error {
			if err := locked(f, func() error { return f.noLog }); err != nil {
				return err
			}
			return l.LogCertificates(ctx, b)
		},
		Report:  func(p fleet.Problem) { f.mu.Lock(); defer f.mu.Unlock(); f.problems = append(f.problems, p) },
		Settled: func(k fleet.GroupKey) { f.mu.Lock(); defer f.mu.Unlock(); f.settled = append(f.settled, k) },
		Trace:   f.trace,
		Now:     time.Now, Random: rand.Reader,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

// trace checks that the span of each delivery ends once, and no sooner than the next begins.
func (f *fixture) trace(_ fleet.GroupKey, id fleet.InstanceID) (string, func(error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.delivering == nil {
		f.delivering = map[fleet.InstanceID]bool{}
	}
	if f.delivering[id] {
		f.t.Errorf("a delivery to %s begins before the last one is over", id)
	}
	f.delivering[id] = true
	over := false
	return "", func(error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if over {
			f.t.Errorf("the span of a delivery to %s ends twice", id)
		}
		over, f.delivering[id] = true, false
	}
}

// permit permits any name, unless configured otherwise.
func (f *fixture) permit(fleet.InstanceID, *pki.LeafRequest) error {
	return locked(f, func() error { return f.noPermit })
}

// claim assigns each key to the first instance that claims it.
func (f *fixture) claim(id fleet.InstanceID, fingerprints []string) (taken []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range fingerprints {
		if owner, ok := f.owners[key]; ok && owner != id {
			taken = append(taken, key)
		}
	}
	for _, key := range fingerprints {
		if len(taken) == 0 {
			f.owners[key] = id
		}
	}
	return taken
}

// bind records keys.
func (f *fixture) bind(_ context.Context, id fleet.InstanceID, fingerprints []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range fingerprints {
		if f.noBind == nil {
			f.bound[key] = id
		}
	}
	return f.noBind
}

func locked[T any](f *fixture, do func() T) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return do()
}

// define creates the config: two tenants with a group of the same name.
func (f *fixture) define(files, level string) {
	f.t.Helper()
	text := `{
	  "cluster": { "id": "c", "secrets": { "encryption_key": { "provider": "env", "source": "K" } } },
	  "server": { "provider": { "kind": "fake", "region": "r", "zone": "z" },
	    "subnet_pools": { "w": { "subnets": ["a"], "tenants": ["*"] } } },
	  "tenants": { "prod": {} },
	  "secrets": { "*": { "tenants": ["*"] } }, "files": { "files/": { "tenants": ["*"] } },
	  "certificates": { "k": { "tenants": ["*"], "kind": "server", "cn": "{{ .Instance.Hostname }}",
	    "dns": ["{{ .Instance.Hostname }}"], "ip": ["{{ .Instance.IP4 }}"], "ttl": 24 } },
	  "templates": { "knd": { "tenants": ["*"], "kind": "knd", "arch": "amd64", "subnet_pool": "w", "files": {` + files + `} } },
	  "groups": {
	    "default": { "web": { "template": "knd", "vars": { "level": "` + level + `" } } },
	    "prod": { "web": { "template": "knd", "vars": { "level": "prod" } } }
	  }
	}`
	shard, err := config.Parse([]byte(text))
	if err != nil {
		f.t.Fatal(err)
	}
	groups, problems := shard.Resolve(nil)
	if len(problems) > 0 {
		f.t.Fatal(problems)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.static, f.groups = shard, groups
}

func (f *fixture) put(key, body string) {
	f.t.Helper()
	if _, err := f.inner.Put(context.Background(), key, []byte(body), object.Precondition{}); err != nil {
		f.t.Fatal(err)
	}
}

// logged returns the entries of the certificate log.
func (f *fixture) logged() (keys []string) {
	f.t.Helper()
	all, err := object.All(context.Background(), f.inner, "certlog/")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, o := range all {
		keys = append(keys, o.Key)
	}
	return keys
}

// Instance implements delivery.Shard.
func (f *fixture) Instance(id fleet.InstanceID) (fleet.Instance, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.instances[id]
	return i, ok
}

// Group implements delivery.Shard.
func (f *fixture) Group(key fleet.GroupKey) (fleet.Group, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.groups[key]
	return g, ok
}

// Static implements delivery.Shard.
func (f *fixture) Static() *config.Shard {
	return locked(f, func() *config.Shard { return f.static })
}

// Values implements delivery.Shard.
func (f *fixture) Values(_ context.Context, i fleet.Instance, g fleet.Group) (config.Values, error) {
	facts := config.InstanceFacts{ID: string(i.ID), Hostname: i.Hostname, IP4: i.IPs[0]}
	return f.templates.For(config.Facts{Instance: facts, Vars: g.Vars}), nil
}

// Get implements delivery.Secrets.
func (f *fixture) Get(_ context.Context, name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.noSecrets != nil {
		return nil, f.noSecrets
	}
	value, ok := f.secrets[name]
	if !ok {
		return nil, fmt.Errorf("no secret %s", name)
	}
	return []byte(value), nil
}

func (f *fixture) reported() (messages []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.problems {
		messages = append(messages, p.Group.String()+" "+p.Reason+": "+p.Message)
	}
	f.problems = nil
	return messages
}
