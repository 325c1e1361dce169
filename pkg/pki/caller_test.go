package pki_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

func TestParseCaller(t *testing.T) {
	ca := newCA(t, cluster, 1)
	end := epoch.Add(time.Hour)
	for want, cert := range map[pki.Caller]*x509.Certificate{
		{Role: pki.RoleAgent, Cluster: cluster, Tenant: "default", ID: agentID}:     agentPair(t, ca).Certificate(),
		{Role: pki.RoleOperator, Cluster: cluster, Tenant: "default", ID: operator}: operatorPair(t, ca).Certificate(),
		{Role: pki.RoleServer, Cluster: cluster, Shard: shard}:                      serverPair(t, ca, shard).Certificate(),
	} {
		want.NotAfter, want.Serial = end, pki.SerialHex(cert)
		want.PublicKeySHA256 = pki.PublicKeySHA256(cert.PublicKey.(ed25519.PublicKey))
		if got, err := pki.ParseCaller(cert, cluster); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestATenantMayBeCalledLikeARole(t *testing.T) {
	ca, key := newCA(t, cluster, 1), newKey(t, 2)
	r := clientRequest(agentID, key)
	r.Tenant = "server"
	cert, err := ca.IssueAgent(r, seeded(3))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pki.ParseCaller(cert, cluster); err != nil || got.Role != pki.RoleAgent || got.Tenant != "server" || got.Shard != "" {
		t.Errorf("got %+v, %v, want an agent of tenant server", got, err)
	}
}

// forge signs a certificate that this package would never issue.
func forge(t testing.TB, key crypto.Signer, change func(*x509.Certificate), uris ...string) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: epoch, NotAfter: epoch.Add(time.Hour), BasicConstraintsValid: true,
		Subject: pkix.Name{CommonName: agentID, Organization: []string{"default"}},
	}
	for _, uri := range uris {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestRefusedCallers(t *testing.T) {
	key := newKey(t, 1)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const good = "spiffe://example/default/agent/" + agentID
	uri := func(uris ...string) *x509.Certificate { return forge(t, key, nil, uris...) }
	with := func(change func(*x509.Certificate)) *x509.Certificate { return forge(t, key, change, good) }
	if _, err := pki.ParseCaller(uri(good), cluster); err != nil {
		t.Fatalf("the unchanged certificate is refused: %v", err)
	}
	for name, c := range map[string]struct {
		cert *x509.Certificate
		want string
	}{
		"no URI":               {uri(), "0 URI names"},
		"two URIs":             {uri(good, good), "2 URI names"},
		"not SPIFFE":           {uri("https://example/default/agent/" + agentID), "scheme"},
		"another cluster":      {uri("spiffe://other/default/agent/" + agentID), "another cluster"},
		"a port":               {uri("spiffe://example:80/default/agent/" + agentID), "trust domain"},
		"a query":              {uri(good + "?x=1"), "URI name"},
		"an escaped path":      {uri("spiffe://example/default/%61gent/" + agentID), "URI name"},
		"an unknown role":      {uri("spiffe://example/default/admin/" + agentID), "not of an agent"},
		"no id":                {uri("spiffe://example/default/agent"), "not of an agent"},
		"no path":              {uri("spiffe://example"), "not of an agent"},
		"a longer path":        {uri(good + "/x"), "not of an agent"},
		"server with a tenant": {uri("spiffe://example/default/server/dev-1"), "not of an agent"},
		"a bad tenant":         {uri("spiffe://example/De.fault/agent/" + agentID), "tenant"},
		"a bad id":             {uri("spiffe://example/default/agent/A-B"), "agent id"},
		"a bad shard":          {uri("spiffe://example/server/A"), "shard"},
		"another id":           {uri("spiffe://example/default/agent/abc"), "common name"},
		"another tenant":       {uri("spiffe://example/prod/agent/" + agentID), "organizations"},
		"server by agent name": {uri("spiffe://example/server/dev-1"), "common name"},
		"no organization":      {with(func(c *x509.Certificate) { c.Subject.Organization = nil }), "organizations"},
		"two organizations":    {with(func(c *x509.Certificate) { c.Subject.Organization = []string{"default", "prod"} }), "organizations"},
		"a DNS name":           {with(func(c *x509.Certificate) { c.DNSNames = []string{"localhost"} }), "names beside"},
		"a CA":                 {with(func(c *x509.Certificate) { c.IsCA = true }), "CA certificate"},
		"a key on P-256":       {forge(t, ec, nil, good), "want Ed25519"},
		"server of a tenant": {forge(t, key, func(c *x509.Certificate) { c.Subject.CommonName = "dev-1" }, "spiffe://example/server/dev-1"),
			"organizations"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pki.ParseCaller(c.cert, cluster)
			if !errors.Is(err, pki.ErrIdentity) || !strings.Contains(err.Error(), c.want) || got != (pki.Caller{}) {
				t.Errorf("got %+v, %v, want ErrIdentity with %q", got, err, c.want)
			}
		})
	}
}

func TestConnectionCallerWithoutACertificate(t *testing.T) {
	if _, err := pki.ConnectionCaller(tls.ConnectionState{}, cluster); !errors.Is(err, pki.ErrNoCertificate) {
		t.Errorf("got %v, want ErrNoCertificate", err)
	}
}

func FuzzParseCaller(f *testing.F) {
	const good = "spiffe://example/default/agent/" + agentID
	f.Add(good, agentID, "default")
	f.Add("spiffe://example/server/dev-1", "dev-1", "")
	f.Add("spiffe://example/server/agent/x", "x", "server")
	f.Add("spiffe://example//agent/x", "x", "")
	f.Add("spiffe://EXAMPLE/default/operator/x", "x", "default")
	f.Fuzz(func(t *testing.T, uri, name, organization string) {
		u, err := url.Parse(uri)
		if err != nil {
			t.Skip()
		}
		cert := &x509.Certificate{
			SerialNumber: big.NewInt(7), PublicKeyAlgorithm: x509.Ed25519, URIs: []*url.URL{u},
			Subject: pkix.Name{CommonName: name},
		}
		if organization != "" {
			cert.Subject.Organization = []string{organization}
		}
		c, err := pki.ParseCaller(cert, cluster)
		if err != nil {
			if !errors.Is(err, pki.ErrIdentity) {
				t.Errorf("%v is not ErrIdentity", err)
			}
			return
		}
		if !pki.ReservedURI(cluster, uri) {
			t.Errorf("%q is a caller's and yet not reserved", uri)
		}
		want := "spiffe://example/" + c.Tenant + "/" + string(c.Role) + "/" + c.ID
		if c.Role == pki.RoleServer {
			want = "spiffe://example/server/" + c.Shard
		}
		if u.String() != want || name != c.ID+c.Shard || organization != c.Tenant {
			t.Errorf("%+v was read from %q, %q, %q", c, uri, name, organization)
		}
	})
}
