package pki_test

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

func endpoint(keypair *pki.Keypair, cas ...*pki.CA) pki.Endpoint {
	var certs []*x509.Certificate
	for _, ca := range cas {
		certs = append(certs, ca.Certificate())
	}
	return pki.Endpoint{
		Cluster: cluster, Source: pki.NewSource(pki.NewBundle(certs...), keypair),
		Now: func() time.Time { return epoch },
	}
}

// outcome is the result of a connection at both ends, after a byte each way: in TLS 1.3 a
// client learns of a refusal only when it reads.
type outcome struct {
	client, server error
	state          tls.ConnectionState // of the server
}

// loopback returns a connected pair. A net.Pipe has no buffer, so two ends that both write,
// such as an alert and a request, would deadlock.
func loopback(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute) // of the test itself
	if err := errors.Join(a.SetDeadline(deadline), b.SetDeadline(deadline)); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func connect(t *testing.T, client, server *tls.Config) (o outcome) {
	t.Helper()
	a, b := loopback(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer b.Close()
		c := tls.Server(b, server)
		if o.server = c.Handshake(); o.server != nil {
			return
		}
		o.state = c.ConnectionState()
		if _, o.server = io.ReadFull(c, make([]byte, 1)); o.server == nil {
			_, o.server = c.Write([]byte{1})
		}
	}()
	c := tls.Client(a, client)
	if o.client = c.Handshake(); o.client == nil {
		if _, o.client = c.Write([]byte{1}); o.client == nil {
			_, o.client = io.ReadFull(c, make([]byte, 1))
		}
	}
	a.Close()
	<-done
	return o
}

func TestHandshakesThatSucceed(t *testing.T) {
	ca := newCA(t, cluster, 1)
	server := endpoint(serverPair(t, ca, shard), ca)
	for name, c := range map[string]struct {
		from   *pki.Keypair
		host   string
		shard  string
		accept *tls.Config
		want   pki.Role // empty: no client certificate
	}{
		"registration":           {nil, "localhost", shard, server.RegistrationServer(), ""},
		"registration, renewing": {agentPair(t, ca), "localhost", shard, server.RegistrationServer(), ""},
		"agent by DNS name":      {agentPair(t, ca), "localhost", shard, server.Server(), pki.RoleAgent},
		"operator by IPv4":       {operatorPair(t, ca), "127.0.0.1", shard, server.Server(), pki.RoleOperator},
		"operator by IPv6":       {operatorPair(t, ca), "::1", shard, server.Server(), pki.RoleOperator},
		"any shard":              {operatorPair(t, ca), "localhost", "", server.Server(), pki.RoleOperator},
		"peer":                   {serverPair(t, ca, shard), "localhost", shard, server.PeerServer(shard), pki.RoleServer},
		"peer of any shard":      {serverPair(t, ca, "dev-2"), "localhost", shard, server.PeerServer(""), pki.RoleServer},
	} {
		t.Run(name, func(t *testing.T) {
			o := connect(t, endpoint(c.from, ca).Client(c.host, c.shard), c.accept)
			if o.client != nil || o.server != nil || o.state.Version != tls.VersionTLS13 {
				t.Fatalf("client: %v, server: %v, version %x", o.client, o.server, o.state.Version)
			}
			caller, err := pki.ConnectionCaller(o.state, cluster)
			if c.want == "" {
				if !errors.Is(err, pki.ErrNoCertificate) {
					t.Errorf("got %+v, %v, want no caller", caller, err)
				}
			} else if err != nil || caller.Role != c.want {
				t.Errorf("got %+v, %v, want role %s", caller, err, c.want)
			}
		})
	}
}

func TestClientsRefuse(t *testing.T) {
	ca, foreign := newCA(t, cluster, 1), newCA(t, cluster, 2)
	key := newKey(t, 52)
	server := func(change func(*pki.ServerRequest)) *pki.Keypair {
		r := serverRequest(shard, key)
		change(&r)
		return pair(t, key)(ca.IssueServer(r, seeded(3)))
	}
	for name, c := range map[string]struct {
		server      *pki.Keypair
		host, shard string
		want        error
		text        string
	}{
		"another CA":      {serverPair(t, foreign, shard), "localhost", shard, pki.ErrUntrusted, "CN=dev-1"},
		"another cluster": {foreignServer(t, ca), "localhost", shard, pki.ErrIdentity, "another cluster"},
		"another shard":   {serverPair(t, ca, "dev-2"), "localhost", shard, pki.ErrWrongPeer, `a server of shard "dev-2"`},
		"an agent":        {agentPair(t, ca), "localhost", "", pki.ErrWrongPeer, "not issued for this side"},
		"an operator":     {operatorPair(t, ca), "localhost", "", pki.ErrWrongPeer, "not issued for this side"},
		"another name":    {serverPair(t, ca, shard), "example.net", shard, pki.ErrAddress, `"example.net"`},
		"another address": {serverPair(t, ca, shard), "127.0.0.2", shard, pki.ErrAddress, `"127.0.0.2"`},
		"no host given":   {serverPair(t, ca, shard), "", shard, pki.ErrAddress, "no host was given"},
		"expired": {server(func(r *pki.ServerRequest) { r.Now = epoch.Add(-2 * time.Hour) }), "localhost", shard,
			pki.ErrExpired, "valid until 2030-05-01T11:00:00Z"},
		"not yet valid": {server(func(r *pki.ServerRequest) { r.Now = epoch.Add(2 * time.Hour) }), "localhost", shard,
			pki.ErrNotYetValid, "valid from 2030-05-01T13:00:00Z"},
		"an IP only as a DNS name": {server(func(r *pki.ServerRequest) { r.DNS, r.IPs = []string{"127.0.0.1"}, nil }), "127.0.0.1", shard,
			pki.ErrAddress, `"127.0.0.1"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := connect(t, endpoint(nil, ca).Client(c.host, c.shard), endpoint(c.server, ca).RegistrationServer())
			if !errors.Is(o.client, c.want) || !strings.Contains(o.client.Error(), c.text) {
				t.Errorf("client: %v, want %v with %q", o.client, c.want, c.text)
			}
			if o.server == nil {
				t.Error("the server saw a connection that the client refused")
			}
		})
	}
}

// foreignServer returns a certificate of the trusted CA that names another cluster.
func foreignServer(t *testing.T, ca *pki.CA) *pki.Keypair {
	t.Helper()
	key := newKey(t, 52)
	template := forge(t, key, func(c *x509.Certificate) {
		c.Subject.CommonName, c.Subject.Organization = shard, nil
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		c.DNSNames = []string{"localhost"}
	}, "spiffe://other/server/"+shard)
	return signedBy(t, ca, template, key)
}

// signedBy signs a copy of template with the CA's key, like a stolen or misused key.
func signedBy(t *testing.T, ca *pki.CA, template *x509.Certificate, key ed25519.PrivateKey) *pki.Keypair {
	t.Helper()
	caKey := newKey(t, 1)
	der, err := x509.CreateCertificate(nil, template, ca.Certificate(), key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	return pair(t, key)(x509.ParseCertificate(der))
}

func TestServersRefuse(t *testing.T) {
	ca, foreign := newCA(t, cluster, 1), newCA(t, cluster, 2)
	server := endpoint(serverPair(t, ca, shard), ca)
	key := newKey(t, 50)
	old := clientRequest(agentID, key)
	old.Now = epoch.Add(-2 * time.Hour)
	other := forge(t, key, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
		"spiffe://other/default/agent/"+agentID)
	plain := forge(t, key, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	for name, c := range map[string]struct {
		client *pki.Keypair
		config *tls.Config
		want   error
	}{
		"no certificate": {nil, server.Server(), nil},
		"another CA":     {agentPair(t, foreign), server.Server(), pki.ErrUntrusted},
		"self-signed": {pair(t, key)(forge(t, key, nil, "spiffe://example/default/agent/"+agentID), nil), server.Server(),
			pki.ErrUntrusted},
		"another cluster":            {signedBy(t, ca, other, key), server.Server(), pki.ErrIdentity},
		"an instance's other use":    {signedBy(t, ca, plain, key), server.Server(), pki.ErrIdentity},
		"expired":                    {pair(t, key)(ca.IssueAgent(old, seeded(3))), server.Server(), pki.ErrExpired},
		"an agent as peer":           {agentPair(t, ca), server.PeerServer(shard), pki.ErrWrongPeer},
		"an operator as peer":        {operatorPair(t, ca), server.PeerServer(""), pki.ErrWrongPeer},
		"a peer of another shard":    {serverPair(t, ca, "dev-2"), server.PeerServer(shard), pki.ErrWrongPeer},
		"a peer of another CA":       {serverPair(t, foreign, shard), server.PeerServer(shard), pki.ErrUntrusted},
		"the CA's own as client one": {pair(t, newKey(t, 1))(ca.Certificate(), nil), server.Server(), pki.ErrIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			o := connect(t, endpoint(c.client, ca).Client("localhost", shard), c.config)
			if o.server == nil || (c.want != nil && !errors.Is(o.server, c.want)) {
				t.Errorf("server: %v, want %v", o.server, c.want)
			}
			if o.client == nil {
				t.Error("the client noticed nothing")
			}
		})
	}
}

func TestOnlyTLS13(t *testing.T) {
	ca := newCA(t, cluster, 1)
	server, client := endpoint(serverPair(t, ca, shard), ca), endpoint(agentPair(t, ca), ca)
	oldClient := client.Client("localhost", shard)
	oldClient.MinVersion, oldClient.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, cfg := range []*tls.Config{server.RegistrationServer(), server.Server(), server.PeerServer(shard)} {
		if o := connect(t, oldClient, cfg); o.client == nil || o.server == nil {
			t.Errorf("a client of TLS 1.2 got through: %v, %v", o.client, o.server)
		}
	}
	oldServer := server.Server()
	oldServer.MinVersion, oldServer.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if o := connect(t, client.Client("localhost", shard), oldServer); o.client == nil || o.server == nil {
		t.Errorf("a server of TLS 1.2 was accepted: %v, %v", o.client, o.server)
	}
}

func TestAServerWithoutACertificateRefuses(t *testing.T) {
	ca := newCA(t, cluster, 1)
	o := connect(t, endpoint(nil, ca).Client("localhost", shard), endpoint(nil, ca).RegistrationServer())
	if !errors.Is(o.server, pki.ErrNoCertificate) || o.client == nil {
		t.Errorf("client: %v, server: %v, want ErrNoCertificate at the server", o.client, o.server)
	}
}

// A CA is replaced in three steps: trust both, change the certificates, drop the old one. The
// same configurations are used throughout.
func TestTrustAndCertificatesAreReplacedWhileInUse(t *testing.T) {
	old, fresh := newCA(t, cluster, 1), newCA(t, cluster, 2)
	server, client := endpoint(serverPair(t, old, shard), old), endpoint(agentPair(t, old), old)
	accept, dial := server.Server(), client.Client("localhost", shard)
	ok := func(step string, want bool) {
		t.Helper()
		if o := connect(t, dial, accept); (o.client == nil && o.server == nil) != want {
			t.Errorf("%s: client %v, server %v, want success %t", step, o.client, o.server, want)
		}
	}
	both := pki.NewBundle(old.Certificate(), fresh.Certificate())
	ok("at first", true)
	server.Source.SetKeypair(serverPair(t, fresh, shard))
	ok("a server ahead of the client's bundle", false)
	client.Source.SetBundle(both)
	ok("a client that trusts both", true)
	server.Source.SetBundle(pki.NewBundle(fresh.Certificate()))
	ok("a client with a certificate of the dropped CA", false)
	client.Source.SetKeypair(agentPair(t, fresh))
	ok("all of the new CA", true)
}

// Resumption is enabled here, although the configurations disable it, to show that the checks
// do not depend on that.
func TestAResumedSessionIsCheckedAgain(t *testing.T) {
	ca, now := newCA(t, cluster, 1), epoch
	server, client := endpoint(serverPair(t, ca, shard), ca), endpoint(agentPair(t, ca), ca)
	server.Now = func() time.Time { return now }
	accept, dial := server.PeerServer(""), client.Client("localhost", shard)
	if !accept.SessionTicketsDisabled || dial.ClientSessionCache != nil {
		t.Error("resumption is on by default")
	}
	accept = server.Server()
	accept.SessionTicketsDisabled = false
	dial.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for i, resumed := range []bool{false, true} {
		o := connect(t, dial, accept)
		if o.client != nil || o.server != nil || o.state.DidResume != resumed {
			t.Fatalf("connection %d: client %v, server %v, resumed %t, want %t", i, o.client, o.server, o.state.DidResume, resumed)
		}
	}
	server.Source.SetBundle(pki.NewBundle(newCA(t, cluster, 2).Certificate()))
	if o := connect(t, dial, accept); !errors.Is(o.server, pki.ErrUntrusted) {
		t.Errorf("after the CA was dropped: %v, want ErrUntrusted", o.server)
	}
	server.Source.SetBundle(pki.NewBundle(ca.Certificate()))
	client.Source.SetBundle(pki.NewBundle(newCA(t, cluster, 2).Certificate()))
	if o := connect(t, dial, accept); !errors.Is(o.client, pki.ErrUntrusted) {
		t.Errorf("after the client dropped the CA: %v, want ErrUntrusted", o.client)
	}
	now = epoch.Add(2 * time.Hour)
	client.Source.SetBundle(pki.NewBundle(ca.Certificate()))
	if o := connect(t, dial, accept); o.server == nil {
		t.Error("an expired certificate was resumed")
	}
}

func TestServerCertificateNamesIPv4InIPv6(t *testing.T) {
	ca, key := newCA(t, cluster, 1), newKey(t, 52)
	r := serverRequest(shard, key)
	r.DNS, r.IPs = nil, []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.1")}
	server := endpoint(pair(t, key)(ca.IssueServer(r, seeded(3))), ca)
	if o := connect(t, endpoint(nil, ca).Client("10.0.0.1", shard), server.RegistrationServer()); o.client != nil {
		t.Error(o.client)
	}
}

func BenchmarkRegistrationHandshake(b *testing.B) {
	ca := newCA(b, cluster, 1)
	server := endpoint(serverPair(b, ca, shard), ca).RegistrationServer()
	client := endpoint(nil, ca).Client("localhost", shard)
	for b.Loop() {
		x, y := loopback(b)
		go func() { _ = tls.Server(y, server).Handshake() }()
		if err := tls.Client(x, client).Handshake(); err != nil {
			b.Fatal(err)
		}
		x.Close()
		y.Close()
	}
}
