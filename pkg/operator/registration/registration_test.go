package registration_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

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

// world is a namespace, and a cluster with two shards.
type world struct {
	t *testing.T
	*registrationtest.Cluster
	kube      kube.Client
	namespace string
	one, two  registrationtest.Shard
}

func newWorld(t *testing.T) *world {
	t.Helper()
	plane := shared.Plane(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "registration-"}}
	if err := plane.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	c := registrationtest.New(t, nil)
	return &world{t: t, Cluster: c, kube: plane.Client, namespace: namespace.Name, one: c.Shard("one"), two: c.Shard("two")}
}

// given puts a ConfigMap with the CA, and a nonce unless that is empty.
func (w *world) given(nonce string) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: "cas"}
	err := w.kube.Create(w.t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.crt": string(w.CAs())}})
	if meta.Name = "nonce"; nonce != "" {
		secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"nonce.jwt": []byte(nonce)}}
		err = errors.Join(err, w.kube.Create(w.t.Context(), secret))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// lose deletes Secrets, as somebody does by hand.
func (w *world) lose(names ...string) {
	w.t.Helper()
	for _, name := range names {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		if err := w.kube.Delete(w.t.Context(), secret); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) store() *secretstore.Store {
	return secretstore.New(secretstore.Config{
		Client: w.kube, Namespace: w.namespace, CAConfigMap: "cas", CertSecret: "cert", KeySecret: "key", NonceSecret: "nonce",
		Holder: "test", Now: time.Now,
	})
}

func (w *world) config() registration.Config {
	return registration.Config{
		Store: w.store(), Cluster: registrationtest.Name, Tenant: registrationtest.Tenant, Timeout: 10 * time.Second,
		Shards: []client.Shard{{ID: "one", Addrs: []string{w.one.Registration}}, {ID: "two", Addrs: []string{w.two.Registration}}},
		Now:    time.Now, Random: func() float64 { return 0.5 }, Entropy: rand.Reader, Logger: slog.New(slog.DiscardHandler),
	}
}

// open is one start of an operator, which must work.
func (w *world) open() *identity.Identity {
	w.t.Helper()
	id, err := registration.Open(w.t.Context(), w.config())
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) fails(c registration.Config, words ...string) {
	w.t.Helper()
	_, err := registration.Open(w.t.Context(), c)
	if err == nil {
		w.t.Fatal("no error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			w.t.Errorf("%v\nlacks %q", err, word)
		}
	}
}

// distinct is how many keys were asked for.
func (w *world) distinct() int { return len(slices.Compact(slices.Sorted(slices.Values(w.Asked())))) }

// TestFresh: key, nonce, certificate; the next start needs no nonce and asks nobody.
func TestFresh(t *testing.T) {
	w := newWorld(t)
	w.given(registrationtest.Nonce + "\n")
	first := w.open()
	if first.ID() != registrationtest.Operator {
		t.Errorf("the operator is %q", first.ID())
	}
	w.lose("nonce")
	second := w.open()
	if !second.Certificate().Equal(first.Certificate()) || len(w.Asked()) != 1 {
		t.Errorf("registered %d times", len(w.Asked()))
	}
}

// TestResume: an operator that ended before its certificate was stored goes on with the
// key that it had.
func TestResume(t *testing.T) {
	w := newWorld(t)
	w.given(registrationtest.Nonce)
	ctx, die := context.WithCancel(t.Context())
	w.Before = func(string) error { die(); return rpc.Unavailable.Errorf("the answer is lost") }
	if _, err := registration.Open(ctx, w.config()); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first start: %v", err)
	}
	before, err := w.store().Load(t.Context())
	if err != nil || before.Key == nil || before.Certificate != nil {
		t.Fatalf("key %v, certificate %v, %v", before.Key != nil, before.Certificate != nil, err)
	}
	w.Before = nil
	w.open()
	after, err := w.store().Load(t.Context())
	if err != nil || string(after.Key) != string(before.Key) || w.distinct() != 1 {
		t.Errorf("another key than was stored, %d keys were asked for, %v", w.distinct(), err)
	}
}

// TestFatal: what an operator can't start with, and what it says.
func TestFatal(t *testing.T) {
	t.Run("no CA", func(t *testing.T) {
		w := newWorld(t)
		w.fails(w.config(), "CA certificates", "ConfigMap "+w.namespace+"/cas", "ca.crt")
	})
	t.Run("no nonce", func(t *testing.T) {
		w := newWorld(t)
		w.given("")
		w.fails(w.config(), "Secret "+w.namespace+"/nonce", "nonce.jwt", "identity.crt is missing")
		if len(w.Asked()) != 0 {
			t.Error("a shard was asked")
		}
	})
	t.Run("all shards unreachable", func(t *testing.T) {
		w := newWorld(t)
		w.given(registrationtest.Nonce)
		c := w.config()
		c.Timeout = 300 * time.Millisecond
		c.Shards = []client.Shard{{ID: "north", Addrs: []string{"127.0.0.1:1"}}, {ID: "south", Addrs: []string{"127.0.0.1:2"}}}
		w.fails(c, "shard north", "127.0.0.1:1", "shard south", "127.0.0.1:2")
	})
	t.Run("a refused nonce", func(t *testing.T) {
		w := newWorld(t)
		w.given("forged")
		w.fails(w.config(), "shard one: ", "shard two: ", "bad signature")
	})
	t.Run("a shard that is another one", func(t *testing.T) {
		w := newWorld(t)
		w.given(registrationtest.Nonce)
		c := w.config()
		c.Timeout = 300 * time.Millisecond
		c.Shards = []client.Shard{{ID: "two", Addrs: []string{w.one.Registration}}}
		w.fails(c, "shard two", "belongs to another peer")
	})
	t.Run("another tenant", func(t *testing.T) {
		w := newWorld(t)
		w.given(registrationtest.Nonce)
		w.open()
		c := w.config()
		c.Tenant = "blue"
		w.fails(c, `tenant "default"`, `tenant "blue"`)
	})
	t.Run("a certificate that ended", func(t *testing.T) {
		w := newWorld(t)
		w.given(registrationtest.Nonce)
		w.open()
		w.lose("nonce")
		c := w.config()
		c.Now = func() time.Time { return time.Now().Add(48 * time.Hour) }
		w.fails(c, "expired", "Secret "+w.namespace+"/nonce")
	})
}

// TestDeletedSecrets: with the nonce, and the key that it was spent for, a lost certificate
// is had again; without that key the nonce is worth nothing, and another one is needed.
func TestDeletedSecrets(t *testing.T) {
	w := newWorld(t)
	w.given(registrationtest.Nonce)
	w.open()
	w.lose("cert")
	w.open()
	if len(w.Asked()) != 2 || w.distinct() != 1 {
		t.Errorf("%d registrations with %d keys, want two with one", len(w.Asked()), w.distinct())
	}
	w.lose("key")
	w.open() // the certificate's Secret has it too
	w.lose("cert")
	w.fails(w.config(), "shard one: ", "spent with another key")
}

// TestNextShard: one shard that answers is enough.
func TestNextShard(t *testing.T) {
	w := newWorld(t)
	w.given(registrationtest.Nonce)
	c := w.config()
	c.Timeout = time.Second
	c.Shards[0].Addrs = []string{"127.0.0.1:1"}
	if _, err := registration.Open(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// TestTwo: operators that start at once, without leader election, end with one key and
// one certificate.
func TestTwo(t *testing.T) {
	w := newWorld(t)
	w.given(registrationtest.Nonce)
	const operators = 4
	ids := make([]*identity.Identity, operators)
	var all sync.WaitGroup
	for i := range operators {
		all.Go(func() {
			id, err := registration.Open(t.Context(), w.config())
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
		if !id.Certificate().Equal(w.open().Certificate()) {
			t.Error("an operator has another certificate than is stored")
		}
	}
	if w.distinct() != 1 {
		t.Errorf("%d keys were asked for", w.distinct())
	}
}
