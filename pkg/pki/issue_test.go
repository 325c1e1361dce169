package pki_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

func TestCAForm(t *testing.T) {
	ca := newCA(t, cluster, 1)
	c := ca.Certificate()
	if ca.Cluster() != cluster || !c.IsCA || c.MaxPathLen != 0 || !c.MaxPathLenZero || c.PublicKeyAlgorithm != x509.Ed25519 {
		t.Errorf("got %s, CA %t, path length %d, %s", c.Subject, c.IsCA, c.MaxPathLen, c.PublicKeyAlgorithm)
	}
	if want := epoch.AddDate(10, 0, 0); !c.NotAfter.Equal(want) || !c.NotBefore.Equal(epoch.Add(-time.Hour)) {
		t.Errorf("valid %s to %s, want an hour before now to %s", c.NotBefore, c.NotAfter, want)
	}
	if err := c.CheckSignatureFrom(c); err != nil {
		t.Error(err)
	}
	if c.SerialNumber.Sign() <= 0 || c.SerialNumber.BitLen() != 127 {
		t.Errorf("serial %s of %d bits, want a positive one of 127", pki.SerialHex(c), c.SerialNumber.BitLen())
	}
}

func TestSameInputsMakeTheSameCertificates(t *testing.T) {
	a, b := newCA(t, cluster, 1), newCA(t, cluster, 1)
	if !a.Certificate().Equal(b.Certificate()) {
		t.Error("two CAs of the same key, time and serial differ")
	}
	if !agentPair(t, a).Certificate().Equal(agentPair(t, b).Certificate()) {
		t.Error("two leaves of the same key, time and serial differ")
	}
}

func TestRefusedCA(t *testing.T) {
	good := pki.CAConfig{Cluster: cluster, Key: newKey(t, 1), Now: epoch, Random: seeded(1)}
	for name, c := range map[string]struct {
		change func(*pki.CAConfig)
		want   string
	}{
		"bad cluster":   {func(c *pki.CAConfig) { c.Cluster = "Not_A_Name" }, `cluster: "Not_A_Name"`},
		"no key":        {func(c *pki.CAConfig) { c.Key = nil }, "key of 0 bytes"},
		"no randomness": {func(c *pki.CAConfig) { c.Random = strings.NewReader("") }, "serial number"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			c.change(&cfg)
			if _, err := pki.NewCA(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestFindCATakesTheCertificateOfTheKey(t *testing.T) {
	old, current := newCA(t, cluster, 1), newCA(t, cluster, 2)
	renewed, err := pki.NewCA(pki.CAConfig{Cluster: cluster, Key: newKey(t, 2), Now: epoch.Add(time.Hour), Random: seeded(3)})
	if err != nil {
		t.Fatal(err)
	}
	bundle := pki.NewBundle(old.Certificate(), current.Certificate(), renewed.Certificate())
	if ca, err := pki.FindCA(bundle, newKey(t, 2)); err != nil || !ca.Certificate().Equal(renewed.Certificate()) {
		t.Errorf("got %v, want the longest valid certificate of the key", err)
	}
	if _, err := pki.FindCA(bundle, newKey(t, 9)); !errors.Is(err, pki.ErrMismatch) {
		t.Errorf("got %v, want ErrMismatch", err)
	}
	if _, err := pki.NewKeypair(old.Certificate(), newKey(t, 2)); !errors.Is(err, pki.ErrMismatch) {
		t.Errorf("keypair: got %v, want ErrMismatch", err)
	}
}

func TestClientCertificateForm(t *testing.T) {
	c := agentPair(t, newCA(t, cluster, 1)).Certificate()
	if got, want := c.Subject.String(), "CN="+agentID+",O=default"; got != want {
		t.Errorf("subject %s, want %s", got, want)
	}
	if len(c.URIs) != 1 || c.URIs[0].String() != "spiffe://example/default/agent/"+agentID {
		t.Errorf("URIs %v", c.URIs)
	}
	if len(c.ExtKeyUsage) != 1 || c.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth || c.IsCA {
		t.Errorf("usages %v, CA %t", c.ExtKeyUsage, c.IsCA)
	}
	if !c.NotBefore.Equal(epoch.Add(-time.Hour)) || !c.NotAfter.Equal(epoch.Add(time.Hour)) {
		t.Errorf("valid %s to %s", c.NotBefore, c.NotAfter)
	}
}

func TestServerCertificateForm(t *testing.T) {
	c := serverPair(t, newCA(t, cluster, 1), shard).Certificate()
	if len(c.URIs) != 1 || c.URIs[0].String() != "spiffe://example/server/dev-1" || c.Subject.String() != "CN=dev-1" {
		t.Errorf("URIs %v, subject %s", c.URIs, c.Subject)
	}
	if len(c.ExtKeyUsage) != 2 || len(c.DNSNames) != 1 || len(c.IPAddresses) != 2 {
		t.Errorf("usages %v, DNS %v, IPs %v", c.ExtKeyUsage, c.DNSNames, c.IPAddresses)
	}
}

func TestACertificateDoesNotOutliveItsCA(t *testing.T) {
	ca, key := newCA(t, cluster, 1), newKey(t, 2)
	r := clientRequest(agentID, key)
	r.Now = ca.Certificate().NotAfter.Add(-time.Minute)
	if c, err := ca.IssueAgent(r, seeded(3)); err != nil || !c.NotAfter.Equal(ca.Certificate().NotAfter) {
		t.Errorf("got %v, %v, want one that ends with the CA", c, err)
	}
	r.Now = ca.Certificate().NotAfter
	if _, err := ca.IssueAgent(r, seeded(3)); !errors.Is(err, pki.ErrExpired) {
		t.Errorf("got %v, want ErrExpired", err)
	}
}

// TestACertificateDoesNotBeginBeforeItsCA: the clock of who issues it may be behind that of who made the
// CA. An agent whose own clock is behind checks its certificate as of its beginning.
func TestACertificateDoesNotBeginBeforeItsCA(t *testing.T) {
	ca, key := newCA(t, cluster, 1), newKey(t, 2)
	r := clientRequest(agentID, key)
	r.Now = epoch.Add(-14 * time.Minute)
	c, err := ca.IssueAgent(r, seeded(3))
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.NewBundle(ca.Certificate()).Verify(c, x509.ExtKeyUsageClientAuth, c.NotBefore); err != nil {
		t.Errorf("as of its beginning: %v", err)
	}
}

// TestOperatorsLive90DaysAtMost: whatever is requested; no other role is limited.
func TestOperatorsLive90DaysAtMost(t *testing.T) {
	ca, key := newCA(t, cluster, 1), newKey(t, 2)
	const most = 90 * 24 * time.Hour
	for ask, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, most: most, most + time.Second: most,
		365 * 24 * time.Hour: most} {
		r := clientRequest(operator, key)
		r.TTL = ask
		cert, err := ca.IssueOperator(r, seeded(3))
		if err != nil || pki.Life(cert) != want {
			t.Errorf("asked for %s an operator gets %s, %v, want %s", ask, pki.Life(cert), err, want)
		}
		agent, err := ca.IssueAgent(r, seeded(3))
		if err != nil || pki.Life(agent) != ask {
			t.Errorf("asked for %s an agent gets %s, %v", ask, pki.Life(agent), err)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	ca, key := newCA(t, cluster, 1), newKey(t, 2)
	client := func(change func(*pki.ClientRequest)) error {
		r := clientRequest(agentID, key)
		change(&r)
		_, err := ca.IssueAgent(r, seeded(3))
		if _, err2 := ca.IssueOperator(r, seeded(3)); (err == nil) != (err2 == nil) {
			t.Errorf("agent: %v, operator: %v", err, err2)
		}
		return err
	}
	server := func(change func(*pki.ServerRequest)) error {
		r := serverRequest(shard, key)
		change(&r)
		_, err := ca.IssueServer(r, seeded(3))
		return err
	}
	for want, err := range map[string]error{
		`tenant: ""`:              client(func(r *pki.ClientRequest) { r.Tenant = "" }),
		`tenant: "a/b"`:           client(func(r *pki.ClientRequest) { r.Tenant = "a/b" }),
		`id "../server/x"`:        client(func(r *pki.ClientRequest) { r.ID = "../server/x" }),
		`id "ABC"`:                client(func(r *pki.ClientRequest) { r.ID = "ABC" }),
		"public key of 0 bytes":   client(func(r *pki.ClientRequest) { r.PublicKey = nil }),
		"public key of 31 bytes":  client(func(r *pki.ClientRequest) { r.PublicKey = r.PublicKey[:31] }),
		"ttl 0s":                  client(func(r *pki.ClientRequest) { r.TTL = 0 }),
		`shard: "a--b"`:           server(func(r *pki.ServerRequest) { r.Shard = "a--b" }),
		"no DNS names":            server(func(r *pki.ServerRequest) { r.DNS, r.IPs = nil, nil }),
		`DNS name "*.example"`:    server(func(r *pki.ServerRequest) { r.DNS = []string{"*.example"} }),
		`IP address "0.0.0.0"`:    server(func(r *pki.ServerRequest) { r.IPs = []netip.Addr{netip.IPv4Unspecified()} }),
		`IP address "invalid IP"`: server(func(r *pki.ServerRequest) { r.IPs = []netip.Addr{{}} }),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if _, err := ca.IssueAgent(clientRequest(agentID, key), strings.NewReader("")); err == nil {
		t.Error("a certificate was issued without randomness for its serial")
	}
}

func TestKeysAreNotShown(t *testing.T) {
	ca := newCA(t, cluster, 1)
	for _, v := range []any{ca, agentPair(t, ca)} {
		for _, verb := range []string{"%v", "%+v", "%s", "%q"} {
			if text := fmt.Sprintf(verb, v); len(text) > 150 || strings.Contains(text, "[") {
				t.Errorf("%s shows %q", verb, text)
			}
		}
	}
}

func TestReservedURI(t *testing.T) {
	for uri, want := range map[string]bool{
		"spiffe://example/server/dev-1":     true,
		"spiffe://example":                  true,
		"spiffe://example/":                 true,
		"SPIFFE://EXAMPLE/server/dev-1":     true,
		" spiffe://example/x":               true,
		"spiffe://me@example:1/server/x":    true,
		"spiffe://example./server/x":        true,
		"spiffe://ex%61mple/server/x":       true,
		"spiffe:example/server/x":           true,
		"spiffe:///server/x":                true,
		"spiffe://example2/server/x":        false,
		"spiffe://other/example/server/x":   false,
		"https://example/server/dev-1":      false,
		"urn:spiffe://example/server/dev-1": false,
		"":                                  false,
	} {
		if got := pki.ReservedURI(cluster, uri); got != want {
			t.Errorf("%q: got %t, want %t", uri, got, want)
		}
	}
}

func BenchmarkIssueAgent(b *testing.B) {
	ca, key, random := newCA(b, cluster, 1), newKey(b, 2), seeded(3)
	for b.Loop() {
		if _, err := ca.IssueAgent(clientRequest(agentID, key), random); err != nil {
			b.Fatal(err)
		}
	}
}
