package pki_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

func leafCA(t testing.TB, now time.Time) *pki.CA {
	t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA(pki.CAConfig{Cluster: "c", Key: key, Now: now, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func pkixPEM(t testing.TB, public crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func leafKey(t testing.TB, public crypto.PublicKey) pki.LeafKey {
	t.Helper()
	key, err := pki.ParseLeafKey(pkixPEM(t, public))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func ed25519Key(t testing.TB) pki.LeafKey {
	t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return leafKey(t, pki.PublicKey(key))
}

func p256Key(t testing.TB) pki.LeafKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return leafKey(t, key.Public())
}

// TestIssueLeaf: the certificate has exactly what was requested, and verifies for its uses.
func TestIssueLeaf(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca := leafCA(t, now)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	for _, c := range []struct {
		kind   pki.LeafKind
		key    pki.LeafKey
		usages []x509.ExtKeyUsage
	}{
		{pki.LeafServer, ed25519Key(t), []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		{pki.LeafClient, p256Key(t), []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		{pki.LeafPeer, p256Key(t), []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
	} {
		leaf, err := ca.IssueLeaf(pki.LeafRequest{
			Kind: c.kind, CN: "kubelet", Organization: []string{"system:nodes", "x"}, DNS: []string{"web-1", "*.example.org"},
			IP:  []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
			URI: []string{"spiffe://other/x", "https://example.org/"},
			Key: c.key, Now: now, TTL: 3 * time.Hour,
		}, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := pki.ParseCertificate(leaf.PEM)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(cert.ExtKeyUsage, c.usages) {
			t.Errorf("%s: usages %v", c.kind, cert.ExtKeyUsage)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: c.usages[:1],
			DNSName: "a.example.org"}); err != nil {
			t.Errorf("%s: %v", c.kind, err)
		}
		if cert.Subject.CommonName != "kubelet" ||
			!slices.Equal(slices.Sorted(slices.Values(cert.Subject.Organization)), []string{"system:nodes", "x"}) ||
			len(cert.IPAddresses) != 2 || len(cert.URIs) != 2 || len(cert.DNSNames) != 2 {
			t.Errorf("%s: names are %v %v %v %v", c.kind, cert.Subject, cert.DNSNames, cert.IPAddresses, cert.URIs)
		}
		if !cert.NotBefore.Equal(now.Add(-time.Hour)) || !cert.NotAfter.Equal(now.Add(3*time.Hour)) || !leaf.NotAfter.Equal(cert.NotAfter) {
			t.Errorf("%s: valid from %s to %s", c.kind, cert.NotBefore, cert.NotAfter)
		}
		if leaf.Serial != pki.SerialHex(cert) || cert.IsCA {
			t.Errorf("%s: serial %s, CA %v", c.kind, leaf.Serial, cert.IsCA)
		}
		if have := leafKey(t, cert.PublicKey); have.SHA256 != c.key.SHA256 {
			t.Errorf("%s: it is for another key", c.kind)
		}
		if _, err := pki.ParseCaller(cert, "c"); !errors.Is(err, pki.ErrIdentity) {
			t.Errorf("%s: it passes for a member of the cluster: %v", c.kind, err)
		}
	}
}

// TestLeafEndsWithTheCA: a leaf expires with the CA at the latest.
func TestLeafEndsWithTheCA(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca := leafCA(t, now)
	end := ca.Certificate().NotAfter
	r := pki.LeafRequest{Kind: pki.LeafServer, CN: "x", Key: ed25519Key(t), Now: end.Add(-time.Hour), TTL: 2 * time.Hour}
	leaf, err := ca.IssueLeaf(r, rand.Reader)
	if err != nil || !leaf.NotAfter.Equal(end) {
		t.Errorf("it ends at %s, %v, want %s", leaf.NotAfter, err, end)
	}
	r.Now = end
	if _, err := ca.IssueLeaf(r, rand.Reader); !errors.Is(err, pki.ErrExpired) {
		t.Errorf("of an expired CA: %v", err)
	}
}

func TestLeafRefused(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca := leafCA(t, now)
	good := pki.LeafRequest{Kind: pki.LeafPeer, CN: "x", Key: ed25519Key(t), Now: now, TTL: time.Hour}
	if err := good.Check("c"); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*pki.LeafRequest){
		"kind":            func(r *pki.LeafRequest) { r.Kind = "ca" },
		"no name":         func(r *pki.LeafRequest) { r.CN = "" },
		"long name":       func(r *pki.LeafRequest) { r.CN = strings.Repeat("x", 65) },
		"line in a name":  func(r *pki.LeafRequest) { r.CN = "x\ny" },
		"organization":    func(r *pki.LeafRequest) { r.Organization = []string{""} },
		"DNS name":        func(r *pki.LeafRequest) { r.DNS = []string{"a b"} },
		"inner wildcard":  func(r *pki.LeafRequest) { r.DNS = []string{"a.*.b"} },
		"no address":      func(r *pki.LeafRequest) { r.IP = []netip.Addr{{}} },
		"any address":     func(r *pki.LeafRequest) { r.IP = []netip.Addr{netip.IPv4Unspecified()} },
		"relative URI":    func(r *pki.LeafRequest) { r.URI = []string{"/x"} },
		"an agent's name": func(r *pki.LeafRequest) { r.URI = []string{"spiffe://c/default/agent/x"} },
		"a server's name": func(r *pki.LeafRequest) { r.URI = []string{"SPIFFE://C/server/dev-1"} },
		"hundreds":        func(r *pki.LeafRequest) { r.DNS = slices.Repeat([]string{"a"}, 101) },
		"no time":         func(r *pki.LeafRequest) { r.TTL = 0 },
		"no key":          func(r *pki.LeafRequest) { r.Key = pki.LeafKey{} },
	} {
		r := good
		change(&r)
		if _, err := ca.IssueLeaf(r, rand.Reader); err == nil {
			t.Errorf("%s: it was issued", what)
		}
	}
}

func TestParseLeafKeyRefuses(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed := string(pkixPEM(t, ed25519Key(t).Public))
	for what, text := range map[string]string{
		"RSA": string(pkixPEM(t, rsaKey.Public())), "P-384": string(pkixPEM(t, p384.Public())),
		"nothing": "", "two": ed + ed, "junk": "junk", "text around it": "x" + ed,
	} {
		if _, err := pki.ParseLeafKey([]byte(text)); !errors.Is(err, pki.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzParseLeafKey(f *testing.F) {
	f.Add(pkixPEM(f, ed25519Key(f).Public))
	f.Add(pkixPEM(f, p256Key(f).Public))
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"))
	ca, now := leafCA(f, time.Unix(1e9, 0)), time.Unix(1e9, 0)
	f.Fuzz(func(t *testing.T, data []byte) {
		key, err := pki.ParseLeafKey(data)
		if err != nil {
			return
		}
		leaf, err := ca.IssueLeaf(pki.LeafRequest{Kind: pki.LeafClient, CN: "x", Key: key, Now: now, TTL: time.Hour}, rand.Reader)
		if err != nil {
			t.Fatalf("a key that was accepted: %v", err)
		}
		cert, err := pki.ParseCertificate(leaf.PEM)
		if err != nil || leafKey(t, cert.PublicKey).SHA256 != key.SHA256 {
			t.Fatalf("the certificate is for another key: %v", err)
		}
	})
}

// BenchmarkIssueLeaf measures certificates per second on all processors.
func BenchmarkIssueLeaf(b *testing.B) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, key := leafCA(b, now), ed25519Key(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, err := ca.IssueLeaf(pki.LeafRequest{
				Kind: pki.LeafServer, CN: "kubelet", DNS: []string{"web-1.example.org"}, IP: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
				Key: key, Now: now, TTL: time.Hour,
			}, rand.Reader)
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "certs/s")
}
