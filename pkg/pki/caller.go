package pki

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Caller is the identity in a peer's certificate. Tenant and ID are set for agents and
// operators, Shard for servers.
type Caller struct {
	Role     Role
	Cluster  string
	Tenant   string
	ID       string
	Shard    string
	NotAfter time.Time
	Serial   string // from SerialHex
	// PublicKeySHA256 is the hash of the certificate's key, from the function of that name.
	PublicKeySHA256 string
}

// ConnectionCaller returns the peer of a connection whose handshake used a configuration of
// this package, which has verified the certificate. The error is ErrNoCertificate if the peer
// sent none.
func ConnectionCaller(state tls.ConnectionState, cluster string) (Caller, error) {
	if len(state.PeerCertificates) == 0 {
		return Caller{}, fmt.Errorf("%w: the peer sent none", ErrNoCertificate)
	}
	return ParseCaller(state.PeerCertificates[0], cluster)
}

// ParseCaller returns the caller in a certificate that has been verified against the cluster's
// CAs. The certificate must have exactly the form issued by this package: one URI, a SPIFFE ID
// of the cluster, whose tenant is the only organization and whose last segment is the common
// name. Anything else is ErrIdentity, because the same CA also signs certificates for other
// uses.
func ParseCaller(cert *x509.Certificate, cluster string) (Caller, error) {
	caller, err := readIdentity(cert, cluster)
	if err != nil {
		return Caller{}, fmt.Errorf("%w: certificate with serial %s: %w", ErrIdentity, SerialHex(cert), err)
	}
	if err := caller.checkSubject(cert); err != nil {
		return Caller{}, fmt.Errorf("%w: certificate with serial %s: %w", ErrIdentity, SerialHex(cert), err)
	}
	caller.NotAfter = cert.NotAfter
	caller.Serial = SerialHex(cert)
	if key, ok := cert.PublicKey.(ed25519.PublicKey); ok { // checked by readIdentity
		caller.PublicKeySHA256 = PublicKeySHA256(key)
	}
	return caller, nil
}

func readIdentity(cert *x509.Certificate, cluster string) (Caller, error) {
	if cert.IsCA {
		return Caller{}, fmt.Errorf("it is a CA certificate")
	}
	if cert.PublicKeyAlgorithm != x509.Ed25519 {
		return Caller{}, fmt.Errorf("its key is of %s, want Ed25519", cert.PublicKeyAlgorithm)
	}
	if len(cert.URIs) != 1 {
		return Caller{}, fmt.Errorf("it has %d URI names, want one SPIFFE id", len(cert.URIs))
	}
	id, err := spiffeid.FromURI(cert.URIs[0])
	if err != nil {
		return Caller{}, fmt.Errorf("its URI name %.120q: %w", cert.URIs[0], err)
	}
	if id.TrustDomain().Name() != cluster {
		return Caller{}, fmt.Errorf("its SPIFFE id %.120q is of another cluster than %q", id, cluster)
	}
	return parsePath(id)
}

// parsePath distinguishes the forms by their number of segments, so that a tenant may be named
// "server".
func parsePath(id spiffeid.ID) (Caller, error) {
	c := Caller{Cluster: id.TrustDomain().Name()}
	path := strings.Split(strings.TrimPrefix(id.Path(), "/"), "/")
	switch {
	case len(path) == 2 && path[0] == string(RoleServer):
		c.Role, c.Shard = RoleServer, path[1]
		if err := checkName("shard", c.Shard); err != nil {
			return Caller{}, err
		}
	case len(path) == 3 && (path[1] == string(RoleAgent) || path[1] == string(RoleOperator)):
		c.Tenant, c.Role, c.ID = path[0], Role(path[1]), path[2]
		if err := checkName("tenant", c.Tenant); err != nil {
			return Caller{}, err
		}
		if !idPattern.MatchString(c.ID) {
			return Caller{}, fmt.Errorf("%s id %.80q: want 1 to 64 lowercase letters and digits", c.Role, c.ID)
		}
	default:
		return Caller{}, fmt.Errorf("its SPIFFE id %.120q is not of an agent, an operator or a server", id)
	}
	return c, nil
}

// checkSubject compares the certificate's other names with its SPIFFE ID.
func (c Caller) checkSubject(cert *x509.Certificate) error {
	name, organizations := c.ID, []string{c.Tenant}
	if c.Role == RoleServer {
		name, organizations = c.Shard, nil
	}
	if cert.Subject.CommonName != name {
		return fmt.Errorf("its common name is %.80q, its SPIFFE id has %q", cert.Subject.CommonName, name)
	}
	if !slices.Equal(cert.Subject.Organization, organizations) {
		return fmt.Errorf("its organizations are %.120q, its SPIFFE id has %q", cert.Subject.Organization, organizations)
	}
	if c.Role != RoleServer && len(cert.DNSNames)+len(cert.IPAddresses)+len(cert.EmailAddresses) > 0 {
		return fmt.Errorf("it is a client certificate with names beside its SPIFFE id")
	}
	return nil
}
