package secretstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/identity/identitytest"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/secretstore"
	"github.com/nstance/nstance/pkg/pki"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

// fixture is a namespace on a real API server.
type fixture struct {
	t *testing.T
	client.Client
	namespace string
	now       func() time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	plane := shared.Plane(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "secretstore-"}}
	if err := plane.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return &fixture{t: t, Client: plane.Client, namespace: namespace.Name, now: time.Now}
}

// open is one process's store.
func (f *fixture) open() *secretstore.Store {
	return secretstore.New(secretstore.Config{
		Client: f.Client, Namespace: f.namespace, CAConfigMap: "cas", CertSecret: "cert", KeySecret: "key", NonceSecret: "nonce",
		Holder: "test", Now: f.now,
	})
}

func (f *fixture) secret(name string) *corev1.Secret {
	f.t.Helper()
	var s corev1.Secret
	if err := f.Get(f.t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, &s); err != nil {
		f.t.Fatal(err)
	}
	return &s
}

func (f *fixture) delete(name string) {
	f.t.Helper()
	if err := f.Delete(f.t.Context(), f.secret(name)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) cas(text []byte) {
	f.t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "cas"}, Data: map[string]string{"ca.crt": string(text)}}
	if err := f.Create(f.t.Context(), m); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) identity(s identity.Store) *identity.Identity {
	f.t.Helper()
	id, err := identity.Open(f.t.Context(), identity.Config{
		Store: s, Cluster: "example", Now: time.Now, Entropy: rand.Reader, Want: func(pki.Caller) error { return nil },
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

func (f *fixture) load(s identity.Store) identity.Contents {
	f.t.Helper()
	c, err := s.Load(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func TestContract(t *testing.T) {
	identitytest.Run(t, func(t *testing.T) func() identity.Store {
		f := newFixture(t)
		return func() identity.Store { return f.open() }
	})
}

// TestForm: the Secrets are of the form that the documentation promises.
func TestForm(t *testing.T) {
	f, ca := newFixture(t), identitytest.NewAuthority(t)
	f.cas(ca.CAs())
	if err := f.identity(f.open()).Obtain(t.Context(), ca.Issue); err != nil {
		t.Fatal(err)
	}
	cert, key := f.secret("cert"), f.secret("key")
	if cert.Type != corev1.SecretTypeTLS || !bytes.Equal(cert.Data["ca.crt"], ca.CAs()) {
		t.Errorf("the certificate's Secret is %s, or has no CA", cert.Type)
	}
	if _, err := pki.ParseKeypair(cert.Data["tls.crt"], cert.Data["tls.key"]); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(cert.Data["tls.key"], key.Data["private.key"]) {
		t.Error("the two Secrets have different keys")
	}
	private, err := pki.ParsePrivateKey(key.Data["private.key"])
	if err != nil {
		t.Fatal(err)
	}
	if public, err := pki.ParsePublicKey(key.Data["public.key"]); err != nil || !public.Equal(pki.PublicKey(private)) {
		t.Errorf("another public key, %v", err)
	}
}

// TestCrash: a process that ends between two steps is followed by one that asks for the
// key that the first one stored.
func TestCrash(t *testing.T) {
	f, ca := newFixture(t), identitytest.NewAuthority(t)
	f.cas(ca.CAs())
	var asked []string
	crash := func(_ context.Context, publicKey string) (identity.Issued, error) {
		asked = append(asked, publicKey)
		return identity.Issued{}, errors.New("the process ends here")
	}
	work := func(ctx context.Context, publicKey string) (identity.Issued, error) {
		asked = append(asked, publicKey)
		return ca.Issue(ctx, publicKey)
	}
	for _, step := range []struct {
		name string
		do   func(*identity.Identity, identity.Ask) error
	}{
		{"registration", func(i *identity.Identity, ask identity.Ask) error { return i.Obtain(t.Context(), ask) }},
		{"renewal", func(i *identity.Identity, ask identity.Ask) error { return i.Renew(t.Context(), ask) }},
	} {
		asked = nil
		before := f.load(f.open())
		if step.do(f.identity(f.open()), crash) == nil {
			t.Fatalf("%s: no error", step.name)
		}
		if between := f.load(f.open()); !bytes.Equal(between.Certificate, before.Certificate) {
			t.Errorf("%s: another certificate before there was one", step.name)
		}
		if err := step.do(f.identity(f.open()), work); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if len(asked) != 2 || asked[0] != asked[1] {
			t.Errorf("%s: asked for the keys %q, want one twice", step.name, asked)
		}
		after := f.load(f.open())
		if _, err := pki.ParseKeypair(after.Certificate, after.Key); err != nil || after.Next != nil || bytes.Equal(after.Key, before.Key) {
			t.Errorf("%s: no pair afterwards, the key from before, or one to come: %v", step.name, err)
		}
	}
}

// TestTwoRegister: two operators that find nothing end with one key and one identity.
func TestTwoRegister(t *testing.T) {
	f, ca := newFixture(t), identitytest.NewAuthority(t)
	f.cas(ca.CAs())
	first, second := f.open(), f.open()
	a, b := f.identity(first), f.identity(second)
	if err := a.Obtain(t.Context(), func(context.Context, string) (identity.Issued, error) {
		return identity.Issued{}, errors.New("slow")
	}); err == nil {
		t.Fatal("no error")
	}
	err := b.Obtain(t.Context(), func(context.Context, string) (identity.Issued, error) {
		t.Error("a server was asked for a key that is not stored")
		return identity.Issued{}, errors.New("no")
	})
	var local *identity.LocalError
	if !errors.Is(err, secretstore.ErrChanged) || !errors.As(err, &local) {
		t.Fatalf("the second key was stored over the first one: %v", err)
	}
	b = f.identity(second) // again, and both are under way with the same key now
	for _, each := range []struct {
		id   *identity.Identity
		wins bool
	}{{b, true}, {a, false}} {
		if err := each.id.Obtain(t.Context(), ca.Issue); errors.Is(err, secretstore.ErrChanged) == each.wins {
			t.Fatalf("%v: %v", each.wins, err)
		}
	}
	if a := f.identity(first); a.Problem() != nil || !a.Certificate().Equal(b.Certificate()) {
		t.Errorf("two identities, %v", a.Problem())
	}
}

// TestTwoRenew: two operators renew at once because the lock has failed them. The store
// holds one pair at the end, and both have it.
func TestTwoRenew(t *testing.T) {
	f, ca := newFixture(t), identitytest.NewAuthority(t)
	f.cas(ca.CAs())
	if err := f.identity(f.open()).Obtain(t.Context(), ca.Issue); err != nil {
		t.Fatal(err)
	}
	late := *f
	late.now = func() time.Time { return time.Now().Add(time.Hour) } // the lock means nothing to it
	a, b := f.identity(f.open()), f.identity(late.open())
	err := a.Renew(t.Context(), func(ctx context.Context, publicKey string) (identity.Issued, error) {
		if err := b.Renew(ctx, ca.Issue); err != nil {
			t.Errorf("the second renewal, within the first one: %v", err)
		}
		return ca.Issue(ctx, publicKey)
	})
	if !errors.Is(err, secretstore.ErrChanged) {
		t.Fatalf("the first one: %v", err)
	}
	// Its next attempt takes over what it finds.
	if err := a.Renew(t.Context(), ca.Issue); err != nil || !a.Certificate().Equal(b.Certificate()) {
		t.Errorf("another certificate than in the store, %v", err)
	}
}

// TestLockOfTheDead: the lock of a crashed process expires, and so does one with a time in the
// future.
func TestLockOfTheDead(t *testing.T) {
	for _, ahead := range []time.Duration{3 * time.Minute, -3 * time.Minute} {
		f := newFixture(t)
		if _, held, err := f.open().Lock(t.Context()); err != nil || !held {
			t.Fatalf("held %v, %v", held, err)
		}
		f.now = func() time.Time { return time.Now().Add(ahead) }
		if _, held, err := f.open().Lock(t.Context()); err != nil || !held {
			t.Errorf("after %s: held %v, %v", ahead, held, err)
		}
	}
}

// TestLockRace: of many that come at once, one gets the lock.
func TestLockRace(t *testing.T) {
	f := newFixture(t)
	for range 3 {
		unlocks := make(chan func(), 8)
		var all sync.WaitGroup
		for range cap(unlocks) {
			all.Go(func() {
				unlock, held, err := f.open().Lock(t.Context())
				if err != nil {
					t.Error(err)
				}
				if held {
					unlocks <- unlock
				}
			})
		}
		all.Wait()
		if len(unlocks) != 1 {
			t.Fatalf("%d hold the lock", len(unlocks))
		}
		(<-unlocks)()
	}
}

// TestByHand: what people do to Secrets.
func TestByHand(t *testing.T) {
	f, ca := newFixture(t), identitytest.NewAuthority(t)
	f.cas(ca.CAs())
	id := f.identity(f.open())
	if err := id.Obtain(t.Context(), ca.Issue); err != nil {
		t.Fatal(err)
	}
	f.delete("key") // nothing is lost
	if again := f.identity(f.open()); again.Problem() != nil {
		t.Errorf("without the key's Secret: %v", again.Problem())
	}
	labelled := f.secret("cert")
	labelled.Labels, labelled.Data["note"] = map[string]string{"mine": "yes"}, []byte("x")
	if err := f.Update(t.Context(), labelled); err != nil {
		t.Fatal(err)
	}
	if err := id.Renew(t.Context(), ca.Issue); err != nil {
		t.Fatal(err)
	}
	if s := f.secret("cert"); s.Labels["mine"] != "yes" || string(s.Data["note"]) != "x" {
		t.Error("what was put beside the certificate is gone")
	}
	half := f.secret("cert")
	half.Data["tls.key"] = nil
	if err := f.Update(t.Context(), half); err != nil {
		t.Fatal(err)
	}
	if again := f.identity(f.open()); !errors.Is(again.Problem(), identity.ErrMissing) {
		t.Errorf("half of a pair: %v", again.Problem())
	}
	f.delete("cert")
	if err := id.Renew(t.Context(), ca.Issue); err != nil { // a holder of the old one in memory puts another one there
		t.Fatal(err)
	}
	if again := f.identity(f.open()); again.Problem() != nil || !again.Certificate().Equal(id.Certificate()) {
		t.Errorf("after the Secret was deleted: %v", again.Problem())
	}
}

// TestCAs: those of the user and those that the servers told count both.
func TestCAs(t *testing.T) {
	f, old, new := newFixture(t), identitytest.NewAuthority(t), identitytest.NewAuthority(t)
	f.cas(old.CAs())
	if c := f.load(f.open()); !bytes.Equal(c.CAs, old.CAs()) {
		t.Errorf("CAs of the ConfigMap:\n%s", c.CAs)
	}
	id := f.identity(f.open())
	if err := id.Obtain(t.Context(), func(ctx context.Context, publicKey string) (identity.Issued, error) {
		issued, err := old.Issue(ctx, publicKey)
		issued.CAs = string(new.CAs()) + string(old.CAs())
		issued.Signature = old.Sign([]byte(issued.CAs))
		return issued, err
	}); err != nil {
		t.Fatal(err)
	}
	if c := f.load(f.open()); string(c.CAs) != string(new.CAs())+string(old.CAs()) {
		t.Errorf("CAs of both:\n%s", c.CAs)
	}
	for _, text := range []string{"nonsense", strings.Repeat("-", 5)} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "cas"}, Data: map[string]string{"ca.crt": text}}
		if err := f.Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		_, err := f.open().Load(t.Context())
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("ConfigMap %s/cas: ca.crt", f.namespace)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestNonce(t *testing.T) {
	f := newFixture(t)
	_, err := f.open().Nonce(t.Context())
	if !errors.Is(err, secretstore.ErrNoNonce) || !strings.Contains(err.Error(), f.namespace+"/nonce") {
		t.Errorf("without one: %v", err)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "nonce"}, Data: map[string][]byte{"other": []byte("x")}}
	if err := f.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := f.open().Nonce(t.Context()); !errors.Is(err, secretstore.ErrNoNonce) || !strings.Contains(err.Error(), "nonce.jwt") {
		t.Errorf("under another key: %v", err)
	}
	s.Data["nonce.jwt"] = []byte(" token\n")
	if err := f.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if nonce, err := f.open().Nonce(t.Context()); err != nil || nonce != "token" {
		t.Errorf("%q, %v", nonce, err)
	}
}
