package secrets_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/secrets"
)

var epoch = time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)

const (
	caCert   = "cluster/ca.crt"
	caKey    = prefix + "ca.key"
	caBundle = prefix + "ca-bundle"
	nonceKey = prefix + "registration-nonce.key"
)

func config(t testing.TB, store object.Store, seed uint64) secrets.BootstrapConfig {
	return secrets.BootstrapConfig{
		ClusterID: "example", Store: store, Secrets: sealed(t, store, seed, keyA),
		Now: func() time.Time { return epoch.Add(time.Duration(seed) * time.Second) }, Random: seeded(seed + 1000),
	}
}

func bootstrap(t testing.TB, store object.Store, seed uint64) secrets.Trust {
	t.Helper()
	trust, err := secrets.Bootstrap(t.Context(), config(t, store, seed))
	if err != nil {
		t.Fatal(err)
	}
	return trust
}

func same(a, b secrets.Trust) bool {
	return a.ClusterID == b.ClusterID && a.CA.Certificate().Equal(b.CA.Certificate()) &&
		bytes.Equal(a.Bundle.PEM(), b.Bundle.PEM()) && a.NonceKey.Equal(b.NonceKey)
}

// contents returns every object of the store, by key.
func contents(t testing.TB, store object.Store) map[string]string {
	t.Helper()
	all, err := object.All(t.Context(), store, "")
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{}
	for _, info := range all {
		o, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		bodies[info.Key] = string(o.Body)
	}
	return bodies
}

func TestBootstrapMakesWhatIsMissingOnce(t *testing.T) {
	store := mem.New(mem.Config{})
	first := bootstrap(t, store, 1)
	if first.ClusterID != "example" || first.CA.Cluster() != "example" || len(first.NonceKey) == 0 {
		t.Errorf("got %v", first)
	}
	before := contents(t, store)
	if len(before) != 4 || before[caCert] == "" || before[caBundle] == "" || before[caKey] == "" || before[nonceKey] == "" {
		t.Errorf("the store holds %d objects", len(before))
	}
	if strings.Contains(before[caKey], "PRIVATE") || strings.Contains(before[nonceKey], "PRIVATE") {
		t.Error("a key is stored in the clear")
	}
	if !same(first, bootstrap(t, store, 2)) {
		t.Error("a second server has another trust")
	}
	loaded, err := secrets.Load(t.Context(), secrets.BootstrapConfig{Store: store, Secrets: sealed(t, store, 3, keyA)})
	if err != nil || !same(first, loaded) {
		t.Errorf("loaded %v, %v", loaded, err)
	}
	if fmt.Sprint(before) != fmt.Sprint(contents(t, store)) {
		t.Error("the store was changed after it was complete")
	}
	key, err := pki.GenerateKey(seeded(5))
	if err != nil {
		t.Fatal(err)
	}
	request := pki.ClientRequest{Tenant: "default", ID: "knd1", PublicKey: pki.PublicKey(key), Now: epoch, TTL: time.Hour}
	_, err = first.CA.IssueAgent(request, seeded(6))
	if err != nil {
		t.Errorf("the CA can't sign: %v", err)
	}
}

// counting counts the applied writes, by key.
type counting struct {
	object.Store
	mu      sync.Mutex
	applied map[string]int
}

func (c *counting) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	etag, err := c.Store.Put(ctx, key, body, pre)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.applied[key]++
	}
	return etag, err
}

// boot retries Bootstrap like a server until the storage works.
func boot(t *testing.T, store object.Store, seed uint64) (secrets.Trust, bool) {
	cfg := config(t, store, seed)
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		trust, err := secrets.Bootstrap(ctx, cfg)
		cancel()
		if err == nil {
			return trust, true
		}
		if !errors.Is(err, object.ErrUnknown) || errors.Is(err, secrets.ErrBrokenTrust) {
			t.Errorf("server %d: %v", seed, err)
			return secrets.Trust{}, false
		}
		time.Sleep(30 * time.Second)
	}
	t.Errorf("server %d never came up", seed)
	return secrets.Trust{}, false
}

// Ten servers start at once on an empty bucket that loses, delays and blocks requests.
// Whatever happens, each part is written once and all ten agree.
func TestRacingServersAgree(t *testing.T) {
	const seeds, servers = 150, 10
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			store := &counting{Store: mem.New(mem.Config{Latency: time.Millisecond}), applied: map[string]int{}}
			trusts, ok := make([]secrets.Trust, servers), make([]bool, servers)
			var all sync.WaitGroup
			for i := range servers {
				plan := objecttest.Seeded(seed*servers+uint64(i), objecttest.Rates{
					Dropped: 0.15, ReplyLost: 0.15, Late: 0.15, Hung: 0.05, Latency: 200 * time.Millisecond, Delay: time.Minute,
				})
				faults := objecttest.NewFaults(store, plan)
				all.Go(func() {
					trusts[i], ok[i] = boot(t, faults, uint64(i))
					faults.Wait()
				})
			}
			all.Wait()
			for i := range servers {
				if ok[i] && ok[0] && !same(trusts[0], trusts[i]) {
					t.Errorf("servers 0 and %d disagree", i)
				}
			}
			for _, key := range []string{caCert, caKey, caBundle, nonceKey} {
				if store.applied[key] != 1 {
					t.Errorf("%s was written %d times", key, store.applied[key])
				}
			}
			loaded, err := secrets.Load(t.Context(), config(t, store, 99))
			if err != nil || !same(loaded, trusts[0]) {
				t.Errorf("what was stored is not what the servers hold: %v", err)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// meanwhile calls a function before its n-th request.
type meanwhile struct {
	object.Store
	n    int
	what func()
}

func (m *meanwhile) tick() {
	if m.n--; m.n == 0 {
		m.what()
	}
}

func (m *meanwhile) Get(ctx context.Context, key string) (object.Object, error) {
	m.tick()
	return m.Store.Get(ctx, key)
}

func (m *meanwhile) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	m.tick()
	return m.Store.Put(ctx, key, body, pre)
}

// Another server completes between any two requests of this one.
func TestAnotherServerFinishesInBetween(t *testing.T) {
	for n, happened := 1, true; happened; n++ {
		happened = false
		store := mem.New(mem.Config{})
		var theirs secrets.Trust
		slow := &meanwhile{Store: store, n: n, what: func() { happened, theirs = true, bootstrap(t, store, 2) }}
		ours, err := secrets.Bootstrap(t.Context(), config(t, slow, 1))
		if err != nil {
			t.Fatalf("before request %d: %v", n, err)
		}
		if happened && !same(ours, theirs) {
			t.Errorf("before request %d: the two disagree", n)
		}
		if !happened && n < 9 {
			t.Fatalf("only %d requests were tried", n-1)
		}
	}
}

// A server dies at its n-th write, applied or not; the next one completes and keeps what
// exists.
func TestAServerThatDiesHalfWay(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{"before": objecttest.Dropped, "after": objecttest.ReplyLost} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s write %d landed", name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := mem.New(mem.Config{})
					dieAt(t, store, n, fault)
					before := contents(t, store)
					if want := n - 1 + map[objecttest.Fault]int{objecttest.ReplyLost: 1}[fault]; len(before) != want {
						t.Fatalf("the dead server left %d objects, want %d", len(before), want)
					}
					if _, err := secrets.Load(t.Context(), config(t, store, 3)); len(before) < 4 && !errors.Is(err, secrets.ErrNoTrust) {
						t.Errorf("load half-way: got %v, want ErrNoTrust", err)
					}
					bootstrap(t, store, 2)
					after := contents(t, store)
					for key, body := range before {
						if after[key] != body {
							t.Errorf("%s was made anew", key)
						}
					}
					if len(after) != 4 {
						t.Errorf("%d objects, want 4", len(after))
					}
				})
			})
		}
	}
}

// dieAt runs a server whose n-th write fails as given and which can't reach the store
// afterwards.
func dieAt(t *testing.T, store object.Store, n int, fault objecttest.Fault) {
	t.Helper()
	writes := 0
	plan := func(r objecttest.Request) objecttest.Outcome {
		if r.Verb == object.VerbPut {
			writes++
		}
		switch {
		case writes < n:
			return objecttest.Outcome{}
		case writes == n && r.Verb == object.VerbPut:
			return objecttest.Outcome{Fault: fault}
		default:
			return objecttest.Outcome{Fault: objecttest.Dropped}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := secrets.Bootstrap(ctx, config(t, objecttest.NewFaults(store, plan), 1)); !errors.Is(err, object.ErrUnknown) {
		t.Fatalf("got %v, want ErrUnknown", err)
	}
}

func TestRefusedTrust(t *testing.T) {
	remove := func(key string) func(*testing.T, object.Store) {
		return func(t *testing.T, s object.Store) {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	overwrite := func(key, body string) func(*testing.T, object.Store) {
		return func(t *testing.T, s object.Store) {
			if _, err := s.Put(t.Context(), key, []byte(body), object.Precondition{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := mem.New(mem.Config{})
	bootstrap(t, other, 7)
	foreign := contents(t, other)
	ours := contents(t, made(t))[caCert]
	lookalike := lookalikeOf(t, ours)
	garbage := func(name string) func(*testing.T, object.Store) {
		return func(t *testing.T, s object.Store) {
			remove(prefix+name)(t, s)
			create(t, sealed(t, s, 9, keyA), name, "garbage", true)
		}
	}
	for name, c := range map[string]struct {
		spoil func(*testing.T, object.Store)
		want  string
	}{
		"certificate without key":    {remove(caKey), "stop all servers and delete cluster/ca.crt"},
		"certificate of another key": {overwrite(caCert, foreign[caCert]), "certificate and key do not match"},
		"key of another certificate": {overwrite(caKey, foreign[caKey]), "certificate and key do not match"},
		"certificate is garbage":     {overwrite(caCert, "x"), "cluster/ca.crt: parse CA bundle"},
		"certificate is empty":       {overwrite(caCert, ""), "cluster/ca.crt: parse CA bundle"},
		"key is garbage":             {garbage("ca.key"), "secret ca.key: parse private key"},
		"key does not decrypt":       {overwrite(caKey, strings.Repeat("x", 100)), "old_encryption_keys"},
		"bundle is garbage":          {garbage("ca-bundle"), "secret ca-bundle: parse CA bundle"},
		"bundle does not decrypt":    {overwrite(caBundle, foreign[caKey]), "old_encryption_keys"},
		"a CA was added":             {overwrite(caCert, ours+foreign[caCert]), "certificate 2 ("},
		"a CA was put first":         {overwrite(caCert, foreign[caCert]+ours), "certificate 1 ("},
		"a copy of the CA":           {overwrite(caCert, ours+lookalike), "certificate 2 ("},
		"bundle gone, a CA added": {func(t *testing.T, s object.Store) {
			remove(caBundle)(t, s)
			overwrite(caCert, ours+foreign[caCert])(t, s)
		}, "certificate 2 ("},
		"nonce key is garbage":       {garbage("registration-nonce.key"), "secret registration-nonce.key: parse private key"},
		"nonce key does not decrypt": {overwrite(nonceKey, foreign[caKey]), "old_encryption_keys"},
	} {
		t.Run(name, func(t *testing.T) {
			store := mem.New(mem.Config{})
			bootstrap(t, store, 1)
			c.spoil(t, store)
			before := contents(t, store)
			for how, open := range map[string]func(context.Context, secrets.BootstrapConfig) (secrets.Trust, error){
				"bootstrap": secrets.Bootstrap, "load": secrets.Load,
			} {
				_, err := open(t.Context(), config(t, store, 2))
				if name == "bundle gone, a CA added" && how == "load" {
					if !errors.Is(err, secrets.ErrNoTrust) {
						t.Errorf("load: got %v, want ErrNoTrust", err)
					}
					continue
				}
				if !errors.Is(err, secrets.ErrBrokenTrust) || errors.Is(err, secrets.ErrNoTrust) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: got %v, want ErrBrokenTrust with %q", how, err, c.want)
				}
			}
			if fmt.Sprint(before) != fmt.Sprint(contents(t, store)) {
				t.Error("something was written")
			}
		})
	}
}

func TestTheWrongClusterAndTheWrongKeyWriteNothing(t *testing.T) {
	store := mem.New(mem.Config{})
	bootstrap(t, store, 1)
	if err := store.Delete(t.Context(), nonceKey); err != nil {
		t.Fatal(err)
	}
	elsewhere, locked := config(t, store, 2), config(t, store, 3)
	elsewhere.ClusterID = "elsewhere"
	locked.Secrets = sealed(t, store, 3, keyB)
	for want, cfg := range map[string]secrets.BootstrapConfig{`cluster "example", not to "elsewhere"`: elsewhere, "env KEY_b": locked} {
		if _, err := secrets.Bootstrap(t.Context(), cfg); !errors.Is(err, secrets.ErrBrokenTrust) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrBrokenTrust with %q", err, want)
		}
	}
	if n := len(contents(t, store)); n != 3 {
		t.Errorf("%d objects, want the 3 that were there", n)
	}
	_, err := secrets.Bootstrap(t.Context(), secrets.BootstrapConfig{Store: store})
	if err == nil || !strings.Contains(err.Error(), "cluster id") {
		t.Errorf("without a cluster id: got %v", err)
	}
}

func TestLoadOnAnEmptyCluster(t *testing.T) {
	store := mem.New(mem.Config{})
	_, err := secrets.Load(t.Context(), config(t, store, 1))
	if !errors.Is(err, secrets.ErrNoTrust) || !strings.Contains(err.Error(), "start a server first") {
		t.Errorf("got %v, want ErrNoTrust", err)
	}
	if n := len(contents(t, store)); n != 0 {
		t.Errorf("load wrote %d objects", n)
	}
}

func TestABundleOfSeveralCAs(t *testing.T) {
	store := mem.New(mem.Config{})
	first := bootstrap(t, store, 1)
	bundle := pki.NewBundle(newCA(t, 77), first.CA.Certificate())
	if _, err := secrets.TrustCAs(t.Context(), config(t, store, 5), bundle); err != nil {
		t.Fatal(err)
	}
	put(t, store, caCert, string(bundle.PEM()))
	trust := bootstrap(t, store, 2)
	if len(trust.Bundle.Certificates()) != 2 || !trust.CA.Certificate().Equal(first.CA.Certificate()) {
		t.Errorf("got %d certificates and CA %v, want both and the one of the stored key", len(trust.Bundle.Certificates()), trust.CA)
	}
}
