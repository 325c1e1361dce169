package registration_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/registration"
	"github.com/nstance/nstance/pkg/operator/registration/registrationtest"
	"github.com/nstance/nstance/pkg/operator/secretstore"
	"github.com/nstance/nstance/pkg/rpc"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

// fixture is a namespace, and a cluster with two shards.
type fixture struct {
	t *testing.T
	*registrationtest.Cluster
	kube      kube.Client
	namespace string
	one, two  registrationtest.Shard
	dial      func(context.Context, string) (net.Conn, error) // nil: TCP
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	plane := shared.Plane(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "registration-"}}
	if err := plane.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	c := registrationtest.New(t, nil)
	return &fixture{t: t, Cluster: c, kube: plane.Client, namespace: namespace.Name, one: c.Shard("one"), two: c.Shard("two")}
}

// simulated runs a test in simulated time: on an API server and a network in memory.
func simulated(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := registrationtest.New(t, nil)
		c.Network = &registrationtest.Network{}
		test(t, &fixture{
			t: t, Cluster: c, kube: fake.NewClientBuilder().Build(), namespace: "operators", one: c.Shard("one"), two: c.Shard("two"),
			dial: c.Network.Dial,
		})
	})
}

// given puts a ConfigMap with the CA, and a nonce unless that is empty.
func (f *fixture) given(nonce string) {
	f.t.Helper()
	meta := metav1.ObjectMeta{Namespace: f.namespace, Name: "cas"}
	err := f.kube.Create(f.t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.crt": string(f.CAs())}})
	if meta.Name = "nonce"; nonce != "" {
		secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"nonce.jwt": []byte(nonce)}}
		err = errors.Join(err, f.kube.Create(f.t.Context(), secret))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// lose deletes Secrets, as if by hand.
func (f *fixture) lose(names ...string) {
	f.t.Helper()
	for _, name := range names {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
		if err := f.kube.Delete(f.t.Context(), secret); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fixture) store() *secretstore.Store {
	return secretstore.New(secretstore.Config{
		Client: f.kube, Namespace: f.namespace, CAConfigMap: "cas", CertSecret: "cert", KeySecret: "key", NonceSecret: "nonce",
		Holder: "test", Now: time.Now,
	})
}

func (f *fixture) config() registration.Config {
	return registration.Config{
		Store: f.store(), Cluster: registrationtest.Name, Tenant: registrationtest.Tenant, Timeout: time.Minute, Dialer: f.dial,
		Shards: []client.Shard{{ID: "one", Addrs: []string{f.one.Registration}}, {ID: "two", Addrs: []string{f.two.Registration}}},
		Now:    time.Now, Random: func() float64 { return 0.5 }, Entropy: rand.Reader, Logger: slog.New(slog.DiscardHandler),
	}
}

// open is one start of an operator, which must work.
func (f *fixture) open() *identity.Identity {
	f.t.Helper()
	id, err := registration.Open(f.t.Context(), f.config())
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

func (f *fixture) fails(c registration.Config, words ...string) {
	f.t.Helper()
	_, err := registration.Open(f.t.Context(), c)
	if err == nil {
		f.t.Fatal("no error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			f.t.Errorf("%v\nlacks %q", err, word)
		}
	}
}

// distinct is how many keys were asked for.
func (f *fixture) distinct() int { return len(slices.Compact(slices.Sorted(slices.Values(f.Asked())))) }

// TestFresh: key, nonce, certificate; the next start needs no nonce and makes no call.
func TestFresh(t *testing.T) {
	f := newFixture(t)
	f.given(registrationtest.Nonce + "\n")
	first := f.open()
	if first.ID() != registrationtest.Operator {
		t.Errorf("the operator is %q", first.ID())
	}
	f.lose("nonce")
	second := f.open()
	if !second.Certificate().Equal(first.Certificate()) || len(f.Asked()) != 1 {
		t.Errorf("registered %d times", len(f.Asked()))
	}
}

// TestResume: an operator that ended before its certificate was stored goes on with the
// key that it had.
func TestResume(t *testing.T) {
	f := newFixture(t)
	f.given(registrationtest.Nonce)
	ctx, die := context.WithCancel(t.Context())
	f.Before = func(string) error { die(); return rpc.Unavailable.Errorf("the answer is lost") }
	if _, err := registration.Open(ctx, f.config()); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first start: %v", err)
	}
	before, err := f.store().Load(t.Context())
	if err != nil || before.Key == nil || before.Certificate != nil {
		t.Fatalf("key %v, certificate %v, %v", before.Key != nil, before.Certificate != nil, err)
	}
	f.Before = nil
	f.open()
	after, err := f.store().Load(t.Context())
	if err != nil || string(after.Key) != string(before.Key) || f.distinct() != 1 {
		t.Errorf("another key than was stored, %d keys were asked for, %v", f.distinct(), err)
	}
}

// TestFatal: what an operator can't start with, and what it says.
func TestFatal(t *testing.T) {
	t.Run("no CA", func(t *testing.T) {
		f := newFixture(t)
		f.fails(f.config(), "CA certificates", "ConfigMap "+f.namespace+"/cas", "ca.crt")
	})
	t.Run("no nonce", func(t *testing.T) {
		f := newFixture(t)
		f.given("")
		f.fails(f.config(), "Secret "+f.namespace+"/nonce", "nonce.jwt", "identity.crt is missing")
		if len(f.Asked()) != 0 {
			t.Error("a shard was asked")
		}
	})
	t.Run("all shards unreachable", func(t *testing.T) {
		simulated(t, func(_ *testing.T, f *fixture) {
			f.given(registrationtest.Nonce)
			c := f.config()
			c.Shards = []client.Shard{{ID: "north", Addrs: []string{"127.0.0.1:1"}}, {ID: "south", Addrs: []string{"127.0.0.1:2"}}}
			f.fails(c, "shard north", "127.0.0.1:1", "shard south", "127.0.0.1:2")
		})
	})
	t.Run("a refused nonce", func(t *testing.T) {
		f := newFixture(t)
		f.given("forged")
		f.fails(f.config(), "shard one: ", "shard two: ", "bad signature")
	})
	t.Run("a shard that is another one", func(t *testing.T) {
		simulated(t, func(_ *testing.T, f *fixture) {
			f.given(registrationtest.Nonce)
			c := f.config()
			c.Shards = []client.Shard{{ID: "two", Addrs: []string{f.one.Registration}}}
			f.fails(c, "shard two", `leads to a server of shard "one"`)
		})
	})
	t.Run("another tenant", func(t *testing.T) {
		f := newFixture(t)
		f.given(registrationtest.Nonce)
		f.open()
		c := f.config()
		c.Tenant = "blue"
		f.fails(c, `tenant "default"`, `tenant "blue"`)
	})
	t.Run("a certificate that ended", func(t *testing.T) {
		f := newFixture(t)
		f.given(registrationtest.Nonce)
		f.open()
		f.lose("nonce")
		c := f.config()
		c.Now = func() time.Time { return time.Now().Add(48 * time.Hour) }
		f.fails(c, "expired", "Secret "+f.namespace+"/nonce")
	})
}

// TestDeletedSecrets: with the nonce, and the key that it was spent for, a lost certificate
// is had again; without that key the nonce is worth nothing, and another one is needed.
func TestDeletedSecrets(t *testing.T) {
	f := newFixture(t)
	f.given(registrationtest.Nonce)
	f.open()
	f.lose("cert")
	f.open()
	if len(f.Asked()) != 2 || f.distinct() != 1 {
		t.Errorf("%d registrations with %d keys, want two with one", len(f.Asked()), f.distinct())
	}
	f.lose("key")
	f.open() // the certificate's Secret has it too
	f.lose("cert")
	f.fails(f.config(), "shard one: ", "spent with another key")
}

// TestNextShard: one shard that answers is enough.
func TestNextShard(t *testing.T) {
	simulated(t, func(t *testing.T, f *fixture) {
		f.given(registrationtest.Nonce)
		c := f.config()
		c.Shards[0].Addrs = []string{"127.0.0.1:1"}
		if _, err := registration.Open(t.Context(), c); err != nil {
			t.Error(err)
		}
	})
}

// TestTwo: operators that start at once, without leader election, end with one key and
// one certificate.
func TestTwo(t *testing.T) {
	f := newFixture(t)
	f.given(registrationtest.Nonce)
	const operators = 4
	ids := make([]*identity.Identity, operators)
	var all sync.WaitGroup
	for i := range operators {
		all.Go(func() {
			id, err := registration.Open(t.Context(), f.config())
			if err != nil {
				t.Errorf("operator %d: %v", i, err)
			}
			ids[i] = id
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for _, id := range ids {
		if !id.Certificate().Equal(f.open().Certificate()) {
			t.Error("an operator has another certificate than is stored")
		}
	}
	if f.distinct() != 1 {
		t.Errorf("%d keys were asked for", f.distinct())
	}
}
