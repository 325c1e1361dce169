package pki_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

const (
	cluster  = "example"
	shard    = "dev-1"
	agentID  = "knd06awx3x3rs1qsfdc5k3gzk8m2"
	operator = "opr06awx3x3rs1qsfdc5k3gzk8m2"
)

var epoch = time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)

func seeded(n byte) io.Reader { return rand.NewChaCha8([32]byte{n}) }

func newKey(t testing.TB, n byte) ed25519.PrivateKey {
	t.Helper()
	key, err := pki.GenerateKey(seeded(n))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newCA(t testing.TB, cluster string, n byte) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA(pki.CAConfig{Cluster: cluster, Key: newKey(t, n), Now: epoch, Random: seeded(n)})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func clientRequest(id string, key ed25519.PrivateKey) pki.ClientRequest {
	return pki.ClientRequest{Tenant: "default", ID: id, PublicKey: pki.PublicKey(key), Now: epoch, TTL: time.Hour}
}

func serverRequest(shard string, key ed25519.PrivateKey) pki.ServerRequest {
	return pki.ServerRequest{
		Shard: shard, DNS: []string{"localhost"}, PublicKey: pki.PublicKey(key), Now: epoch, TTL: time.Hour,
		IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
	}
}

// pair returns a function that takes an issuer's two results and joins the
// certificate with the key.
func pair(t testing.TB, key ed25519.PrivateKey) func(*x509.Certificate, error) *pki.Keypair {
	return func(cert *x509.Certificate, err error) *pki.Keypair {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		k, err := pki.NewKeypair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
}

func agentPair(t testing.TB, ca *pki.CA) *pki.Keypair {
	key := newKey(t, 50)
	return pair(t, key)(ca.IssueAgent(clientRequest(agentID, key), seeded(50)))
}

func operatorPair(t testing.TB, ca *pki.CA) *pki.Keypair {
	key := newKey(t, 51)
	return pair(t, key)(ca.IssueOperator(clientRequest(operator, key), seeded(51)))
}

func serverPair(t testing.TB, ca *pki.CA, shard string) *pki.Keypair {
	key := newKey(t, 52)
	return pair(t, key)(ca.IssueServer(serverRequest(shard, key), seeded(52)))
}
