package pki

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"time"
)

// ClientRequest requests the certificate of an agent or an operator.
type ClientRequest struct {
	Tenant    string
	ID        string // of the instance or the operator
	PublicKey ed25519.PublicKey
	Now       time.Time
	TTL       time.Duration // from Now
}

// ServerRequest requests the certificate of a server of one shard. At least one DNS name or IP
// address is required.
type ServerRequest struct {
	Shard     string
	DNS       []string
	IPs       []netip.Addr
	PublicKey ed25519.PublicKey
	Now       time.Time
	TTL       time.Duration // from Now
}

// hostPattern matches names that a client can dial and compare: no wildcards.
var hostPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

// IssueAgent signs a client certificate for an instance. random is read for the serial number.
func (ca *CA) IssueAgent(r ClientRequest, random io.Reader) (*x509.Certificate, error) {
	return ca.issueClient(RoleAgent, r, random)
}

// MaxOperatorLife is the maximum lifetime of an operator's certificate, signed by a server or
// by nstance-admin. Operators renew certificates in use, so unused ones expire.
const MaxOperatorLife = 90 * 24 * time.Hour

// IssueOperator signs a client certificate for an operator, for at most MaxOperatorLife.
// random is read for the serial number.
func (ca *CA) IssueOperator(r ClientRequest, random io.Reader) (*x509.Certificate, error) {
	r.TTL = min(r.TTL, MaxOperatorLife)
	return ca.issueClient(RoleOperator, r, random)
}

func (ca *CA) issueClient(role Role, r ClientRequest, random io.Reader) (*x509.Certificate, error) {
	name, err := clientID(ca.Cluster(), r.Tenant, role, r.ID)
	if err != nil {
		return nil, fmt.Errorf("issue %s certificate: %w", role, err)
	}
	cert, err := ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: r.ID, Organization: []string{r.Tenant}},
		URIs:        []*url.URL{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, leaf{key: r.PublicKey, now: r.Now, ttl: r.TTL, random: random})
	if err != nil {
		return nil, fmt.Errorf("issue %s certificate for %s: %w", role, r.ID, err)
	}
	ca.issued.add(string(role))
	return cert, nil
}

// IssueServer signs a server's certificate, valid for both ends of a connection because
// servers of a shard also call each other. random is read for the serial number.
func (ca *CA) IssueServer(r ServerRequest, random io.Reader) (*x509.Certificate, error) {
	name, err := serverID(ca.Cluster(), r.Shard)
	if err != nil {
		return nil, fmt.Errorf("issue server certificate: %w", err)
	}
	ips, err := checkAddresses(r.DNS, r.IPs)
	if err != nil {
		return nil, fmt.Errorf("issue server certificate for %s: %w", r.Shard, err)
	}
	cert, err := ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: r.Shard},
		URIs:        []*url.URL{name},
		DNSNames:    r.DNS,
		IPAddresses: ips,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, leaf{key: r.PublicKey, now: r.Now, ttl: r.TTL, random: random})
	if err != nil {
		return nil, fmt.Errorf("issue server certificate for %s: %w", r.Shard, err)
	}
	ca.issued.add(string(RoleServer))
	return cert, nil
}

// leaf holds the fields of a certificate other than its names.
type leaf struct {
	key    ed25519.PublicKey
	now    time.Time
	ttl    time.Duration
	random io.Reader
}

// issue fills in and signs template.
func (ca *CA) issue(template *x509.Certificate, l leaf) (*x509.Certificate, error) {
	if len(l.key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("public key of %d bytes: want an Ed25519 key of %d", len(l.key), ed25519.PublicKeySize)
	}
	if err := ca.fill(template, l.now, l.ttl, l.random); err != nil {
		return nil, err
	}
	return sign(template, ca.cert, l.key, ca.key)
}

// fill sets the fields of a leaf other than its names. A certificate is only valid while its CA is,
// since it can't be verified at other times.
func (ca *CA) fill(template *x509.Certificate, now time.Time, ttl time.Duration, random io.Reader) error {
	if ttl < time.Second {
		return fmt.Errorf("ttl %s: want at least 1s", ttl)
	}
	if !now.Before(ca.cert.NotAfter) {
		return fmt.Errorf("%w: the CA of cluster %s expired at %s: replace it with a new CA", ErrExpired, ca.Cluster(),
			ca.cert.NotAfter.Format(time.RFC3339))
	}
	number, err := newSerial(random)
	if err != nil {
		return err
	}
	start := now.UTC().Truncate(time.Second)
	template.SerialNumber = number
	template.NotBefore = start.Add(-Backdate)
	if template.NotBefore.Before(ca.cert.NotBefore) { // the CA was made by a clock that was ahead
		template.NotBefore = ca.cert.NotBefore
	}
	template.NotAfter = start.Add(ttl)
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	return nil
}

func checkAddresses(names []string, addrs []netip.Addr) ([]net.IP, error) {
	if len(names)+len(addrs) == 0 {
		return nil, fmt.Errorf("no DNS names and no IP addresses: want at least one")
	}
	for _, name := range names {
		if len(name) > 253 || !hostPattern.MatchString(name) {
			return nil, fmt.Errorf("DNS name %.80q: want a host name without wildcards", name)
		}
	}
	ips := make([]net.IP, 0, len(addrs))
	for _, addr := range addrs {
		if !addr.IsValid() || addr.IsUnspecified() {
			return nil, fmt.Errorf("IP address %q: want one that can be dialled", addr)
		}
		ips = append(ips, addr.Unmap().WithZone("").AsSlice())
	}
	return ips, nil
}
