package secrets_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/secrets"
)

// made returns the store of a cluster that the first server of these tests has set up, always
// the same one.
func made(t testing.TB) object.Store {
	t.Helper()
	store := mem.New(mem.Config{})
	bootstrap(t, store, 1)
	return store
}

// lookalikeOf returns a CA certificate for the same cluster and public key as another one,
// which needs no secret, signed with a key of its own.
func lookalikeOf(t testing.TB, original string) string {
	t.Helper()
	bundle, err := pki.ParseBundle([]byte(original))
	if err != nil {
		t.Fatal(err)
	}
	cert := bundle.Certificates()[0]
	key, err := pki.GenerateKey(seeded(77))
	if err != nil {
		t.Fatal(err)
	}
	template := *cert
	template.NotAfter = cert.NotAfter.AddDate(1, 0, 0)
	parent := template
	parent.PublicKey = key.Public()
	der, err := x509.CreateCertificate(seeded(78), &template, &parent, cert.PublicKey.(ed25519.PublicKey), key)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return string(pki.EncodeCertificate(forged))
}

func newCA(t testing.TB, seed uint64) *x509.Certificate {
	t.Helper()
	key, err := pki.GenerateKey(seeded(seed))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA(pki.CAConfig{Cluster: "example", Key: key, Now: epoch, Random: seeded(seed + 1)})
	if err != nil {
		t.Fatal(err)
	}
	return ca.Certificate()
}

func put(t testing.TB, store object.Store, key, body string) {
	t.Helper()
	if _, err := store.Put(t.Context(), key, []byte(body), object.Precondition{}); err != nil {
		t.Fatal(err)
	}
}

func TestTrustAndDistrust(t *testing.T) {
	store := made(t)
	alone := contents(t, store)[caCert]
	next := newCA(t, 40)
	cfg := config(t, store, 2)
	both, err := secrets.TrustCAs(t.Context(), cfg, pki.NewBundle(next))
	if err != nil || !both.Contains(next) || len(both.Certificates()) != 2 {
		t.Fatalf("%v, %v", both, err)
	}
	if body := contents(t, store)[caCert]; body != string(both.PEM()) {
		t.Errorf("the object holds %s", body)
	}
	again, err := secrets.TrustCAs(t.Context(), cfg, pki.NewBundle(next))
	if err != nil || string(again.PEM()) != string(both.PEM()) {
		t.Errorf("once more: %s, %v", again.PEM(), err)
	}
	// A certificate removed from the object still counts, and so does one for which it has
	// room.
	for name, body := range map[string]string{"one": alone, "the other order": string(pki.EncodeCertificate(next)) + alone} {
		put(t, store, caCert, body)
		if trust := bootstrap(t, store, 3); len(trust.Bundle.Certificates()) != 2 || !trust.Bundle.Contains(next) {
			t.Errorf("%s: trusts %s", name, trust.Bundle.PEM())
		}
	}
	if err := store.Delete(t.Context(), caCert); err != nil {
		t.Fatal(err)
	}
	if trust := bootstrap(t, store, 4); string(trust.Bundle.PEM()) != string(both.PEM()) || contents(t, store)[caCert] != string(both.PEM()) {
		t.Errorf("made again, the object is %s", contents(t, store)[caCert])
	}

	own := bootstrap(t, store, 4).CA.Certificate()
	if _, err := secrets.DistrustCA(t.Context(), cfg, pki.Fingerprint(own)); err == nil || !strings.Contains(err.Error(), "signing CA") {
		t.Errorf("the cluster's own: %v", err)
	}
	if _, err := secrets.DistrustCA(t.Context(), cfg, "ab"); !errors.Is(err, secrets.ErrNoSuchCA) {
		t.Errorf("an unknown one: %v", err)
	}
	left, err := secrets.DistrustCA(t.Context(), cfg, pki.Fingerprint(next))
	if err != nil || len(left.Certificates()) != 1 || contents(t, store)[caCert] != alone {
		t.Errorf("left are %v, %v", left, err)
	}
	put(t, store, caCert, string(both.PEM()))
	if _, err := secrets.Bootstrap(t.Context(), config(t, store, 5)); !errors.Is(err, secrets.ErrBrokenTrust) ||
		!strings.Contains(err.Error(), pki.Fingerprint(next)) {
		t.Errorf("the former object is back: %v", err)
	}
}

// TestTrustHalfWay: after a call that fails at any request, every server can start, and a
// repeated call succeeds.
func TestTrustHalfWay(t *testing.T) {
	next := newCA(t, 40)
	change := map[string]func(context.Context, secrets.BootstrapConfig) error{
		"trust": func(ctx context.Context, cfg secrets.BootstrapConfig) error {
			_, err := secrets.TrustCAs(ctx, cfg, pki.NewBundle(next))
			return err
		},
		"distrust": func(ctx context.Context, cfg secrets.BootstrapConfig) error {
			_, err := secrets.DistrustCA(ctx, cfg, pki.Fingerprint(next))
			return err
		},
	}
	for name, do := range change {
		for n, failed := 1, true; failed; n++ {
			synctest.Test(t, func(t *testing.T) {
				store := made(t)
				if name == "distrust" {
					if err := change["trust"](t.Context(), config(t, store, 2)); err != nil {
						t.Fatal(err)
					}
				}
				requests := 0
				faults := objecttest.NewFaults(store, func(objecttest.Request) objecttest.Outcome {
					if requests++; requests >= n {
						return objecttest.Outcome{Fault: objecttest.Dropped}
					}
					return objecttest.Outcome{}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				failed = do(ctx, config(t, faults, 6)) != nil
				if !failed && n < 6 {
					t.Errorf("it took %d requests", n-1)
				}
				if before := bootstrap(t, store, 3); failed && name == "distrust" && !before.Bundle.Contains(next) {
					t.Error("what failed took something away")
				}
				if failed {
					if err := do(t.Context(), config(t, store, 7)); err != nil {
						t.Errorf("again: %v", err)
					}
				}
				if got := bootstrap(t, store, 4).Bundle; got.Contains(next) != (name == "trust") {
					t.Errorf("in the end it trusts %s", got.PEM())
				}
			})
			if t.Failed() {
				t.Fatalf("%s, failing from request %d on", name, n)
			}
		}
	}
}
