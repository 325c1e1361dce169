package pki_test

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

func TestRenewAt(t *testing.T) {
	ca, key := newCA(t, cluster, 1), newKey(t, 2)
	for ttl, want := range map[time.Duration]time.Duration{
		90 * 24 * time.Hour: 60 * 24 * time.Hour, 3 * time.Second: 2 * time.Second, time.Minute: 40 * time.Second,
	} {
		r := clientRequest(agentID, key)
		r.TTL = ttl
		cert, err := ca.IssueAgent(r, seeded(3))
		if err != nil {
			t.Fatal(err)
		}
		if got := pki.RenewAt(cert).Sub(r.Now); got != want || pki.Life(cert) != ttl {
			t.Errorf("a certificate for %s is renewed after %s of %s, want %s", ttl, got, pki.Life(cert), want)
		}
	}
	odd := &x509.Certificate{NotBefore: epoch, NotAfter: epoch.Add(time.Second)}
	if pki.Life(odd) != 0 {
		t.Errorf("a certificate that ended before it was made has a life of %s", pki.Life(odd))
	}
}
