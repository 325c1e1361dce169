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

// The files of every kind, and what they are made from.
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

// site is all that a delivery sees: a config, records, a store and secrets.
type site struct {
	t     testing.TB
	ctx   context.Context
	inner *mem.Store
	lists *objecttest.Listing // over inner
	store *objecttest.Counting
	ca    *pki.CA
	d     *delivery.Delivery

	mu        sync.Mutex
	static    *config.Shard
	groups    map[fleet.GroupKey]fleet.Group
	instances map[fleet.InstanceID]fleet.Instance
	secrets   map[string]string
	reads     int // of secrets
	noSecrets error
	noLog     error
	noBind    error
	owners    map[string]fleet.InstanceID // of claimed keys
	bound     map[string]fleet.InstanceID // of recorded ones
	problems  []fleet.Problem
	settled   []fleet.GroupKey
	number    int
}

// newSite starts a delivery for a shard whose template has the files. It is to be
// called within a bubble.
func newSite(t *testing.T, files string) *site {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); synctest.Wait() })
	return newSiteIn(t, ctx, files)
}

func newSiteIn(t testing.TB, ctx context.Context, files string) *site { //nolint:revive // ctx is the term's
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
	s := &site{
		t: t, ctx: ctx, inner: inner, lists: lists, store: objecttest.NewCounting(lists), ca: ca,
		instances: map[fleet.InstanceID]fleet.Instance{}, secrets: map[string]string{"db": "password"},
		owners: map[string]fleet.InstanceID{}, bound: map[string]fleet.InstanceID{},
	}
	s.put("files/net.json", `{"mtu": 1500}`)
	s.define(files, "info")
	l, err := ledger.Open(ledger.Config{Store: s.store, Shard: "dev-1", Writer: "w", Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.d, err = delivery.New(ctx, delivery.Config{
		Shard: s, CA: ca, Secrets: s, Storage: s.store, Claim: s.claim, Bind: s.bind,
		Log: func(ctx context.Context, b ledger.CertificateBatch) error {
			if err := locked(s, func() error { return s.noLog }); err != nil {
				return err
			}
			return l.LogCertificates(ctx, b)
		},
		Report:  func(p fleet.Problem) { s.mu.Lock(); defer s.mu.Unlock(); s.problems = append(s.problems, p) },
		Settled: func(k fleet.GroupKey) { s.mu.Lock(); defer s.mu.Unlock(); s.settled = append(s.settled, k) },
		Now:     time.Now, Random: rand.Reader,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// claim gives each key to the first instance that comes with it.
func (s *site) claim(id fleet.InstanceID, fingerprints []string) (taken []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range fingerprints {
		if owner, ok := s.owners[f]; ok && owner != id {
			taken = append(taken, f)
		}
	}
	for _, f := range fingerprints {
		if len(taken) == 0 {
			s.owners[f] = id
		}
	}
	return taken
}

// bind records keys.
func (s *site) bind(_ context.Context, id fleet.InstanceID, fingerprints []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range fingerprints {
		if s.noBind == nil {
			s.bound[f] = id
		}
	}
	return s.noBind
}

func locked[T any](s *site, f func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// define makes the config: two tenants with a group of the same name.
func (s *site) define(files, level string) {
	s.t.Helper()
	text := `{
	  "cluster": { "id": "c", "secrets": { "encryption_key": { "provider": "env", "source": "K" } } },
	  "server": { "provider": { "kind": "fake", "region": "r", "zone": "z" }, "subnet_pools": { "w": ["a"] } },
	  "tenants": { "prod": {} },
	  "certificates": { "k": { "kind": "server", "cn": "{{ .Instance.Hostname }}",
	    "dns": ["{{ .Instance.Hostname }}"], "ip": ["{{ .Instance.IP4 }}"], "ttl": 24 } },
	  "templates": { "knd": { "kind": "knd", "arch": "amd64", "subnet_pool": "w", "files": {` + files + `} } },
	  "groups": {
	    "default": { "web": { "template": "knd", "vars": { "level": "` + level + `" } } },
	    "prod": { "web": { "template": "knd", "vars": { "level": "prod" } } }
	  }
	}`
	shard, err := config.Parse([]byte(text))
	if err != nil {
		s.t.Fatal(err)
	}
	groups, problems := shard.Resolve(config.Dynamic{})
	if len(problems) > 0 {
		s.t.Fatal(problems)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.static, s.groups = shard, groups
}

func (s *site) put(key, body string) {
	s.t.Helper()
	if _, err := s.inner.Put(context.Background(), key, []byte(body), object.Precondition{}); err != nil {
		s.t.Fatal(err)
	}
}

// logged are the entries of the certificate log.
func (s *site) logged() (keys []string) {
	s.t.Helper()
	all, err := object.All(context.Background(), s.inner, "certlog/")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range all {
		keys = append(keys, o.Key)
	}
	return keys
}

// Instance implements delivery.Shard.
func (s *site) Instance(id fleet.InstanceID) (fleet.Instance, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.instances[id]
	return i, ok
}

// Group implements delivery.Shard.
func (s *site) Group(key fleet.GroupKey) (fleet.Group, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.groups[key]
	return g, ok
}

// Static implements delivery.Shard.
func (s *site) Static() *config.Shard {
	return locked(s, func() *config.Shard { return s.static })
}

// Facts implements delivery.Shard.
func (s *site) Facts(_ context.Context, i fleet.Instance, g fleet.Group) (config.Facts, error) {
	return config.Facts{Instance: config.InstanceFacts{ID: string(i.ID), Hostname: i.Hostname, IP4: i.IPs[0]}, Vars: g.Vars}, nil
}

// Get implements delivery.Secrets.
func (s *site) Get(_ context.Context, name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.noSecrets != nil {
		return nil, s.noSecrets
	}
	value, ok := s.secrets[name]
	if !ok {
		return nil, fmt.Errorf("no secret %s", name)
	}
	return []byte(value), nil
}

func (s *site) reported() (messages []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.problems {
		messages = append(messages, p.Group.String()+" "+p.Reason+": "+p.Message)
	}
	s.problems = nil
	return messages
}
