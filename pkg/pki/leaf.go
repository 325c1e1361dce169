package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// LeafKind is the use of a certificate that an instance gets for its own services.
type LeafKind string

// Kinds of leaves. A peer is both a server and a client.
const (
	LeafServer LeafKind = "server"
	LeafClient LeafKind = "client"
	LeafPeer   LeafKind = "peer"
)

// LeafRequest requests a certificate for an instance's own services. It does not identify the
// instance in the cluster: names under spiffe://{cluster}/ are refused.
type LeafRequest struct {
	Kind         LeafKind
	CN           string // 1 to 64 characters (RFC 5280, ub-common-name)
	Organization []string
	DNS          []string // a leading "*." is allowed
	IP           []netip.Addr
	URI          []string // absolute
	Key          LeafKey
	Now          time.Time
	TTL          time.Duration // from Now; at least one second
}

// Leaf is an issued certificate.
type Leaf struct {
	PEM      []byte
	Serial   string // from SerialHex
	NotAfter time.Time
}

// LeafKey is a public key for a leaf: Ed25519 or ECDSA on P-256.
type LeafKey struct {
	Public crypto.PublicKey
	SHA256 [sha256.Size]byte // of its PKIX DER, as in a certificate
}

// Limits of a request: a valid template may expand a var to a list that has grown too long.
const (
	maxLeafText  = 64 // characters of a common name or an organization
	maxLeafNames = 100
	maxLeafURI   = 2048 // bytes
)

var leafDNSPattern = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?` +
	`(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$`)

// ParseLeafKey parses exactly one public key in PKIX PEM, as sent by an agent. The error is
// ErrMalformed for anything but an Ed25519 key or an ECDSA key on P-256.
func ParseLeafKey(data []byte) (LeafKey, error) {
	der, err := parseOne(data, publicKeyBlock)
	if err != nil {
		return LeafKey{}, fmt.Errorf("parse public key: %w", err)
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return LeafKey{}, fmt.Errorf("parse public key: %w: %w", ErrMalformed, err)
	}
	switch key := parsed.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return LeafKey{}, fmt.Errorf("parse public key: %w: want an Ed25519 key, or an ECDSA key on P-256, got %s", ErrMalformed,
				describeKey(parsed))
		}
	default:
		return LeafKey{}, fmt.Errorf("parse public key: %w: want an Ed25519 key, or an ECDSA key on P-256, got %s", ErrMalformed,
			describeKey(parsed))
	}
	canonical, err := x509.MarshalPKIXPublicKey(parsed)
	if err != nil {
		return LeafKey{}, fmt.Errorf("parse public key: %w: %w", ErrMalformed, err)
	}
	return LeafKey{Public: parsed, SHA256: sha256.Sum256(canonical)}, nil
}

// IssueLeaf signs a certificate for a service of an instance, backdated like all others, which
// expires no later than the CA. random is read for the serial number. Safe for concurrent use
// if random is.
func (ca *CA) IssueLeaf(r LeafRequest, random io.Reader) (Leaf, error) {
	template, err := r.template(ca.Cluster())
	if err != nil {
		return Leaf{}, fmt.Errorf("issue certificate: %w", err)
	}
	if err := ca.fill(template, r.Now, r.TTL, random); err != nil {
		return Leaf{}, fmt.Errorf("issue certificate for %.80q: %w", r.CN, err)
	}
	// Ed25519 signatures use no randomness, and the serial number is set.
	der, err := x509.CreateCertificate(nil, template, ca.cert, r.Key.Public, ca.key)
	if err != nil {
		return Leaf{}, fmt.Errorf("issue certificate for %.80q: %w", r.CN, err)
	}
	ca.issued.add(kindLeaf)
	return Leaf{
		PEM:      pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}),
		Serial:   SerialHex(template),
		NotAfter: template.NotAfter,
	}, nil
}

// Check returns an error if a CA of the cluster would not issue a certificate with these
// names.
func (r LeafRequest) Check(cluster string) error {
	_, err := r.template(cluster)
	return err
}

func (r LeafRequest) template(cluster string) (*x509.Certificate, error) {
	usage, err := r.Kind.usage()
	if err != nil {
		return nil, err
	}
	for _, text := range append([]string{r.CN}, r.Organization...) {
		if err := checkLeafText(text); err != nil {
			return nil, err
		}
	}
	if n := len(r.Organization) + len(r.DNS) + len(r.IP) + len(r.URI); n > maxLeafNames {
		return nil, fmt.Errorf("%d organizations and names: at most %d are allowed", n, maxLeafNames)
	}
	ips, err := leafIPs(r.IP)
	if err != nil {
		return nil, err
	}
	for _, name := range r.DNS {
		if len(name) > 253 || !leafDNSPattern.MatchString(name) {
			return nil, fmt.Errorf("DNS name %.80q: want a host name, or one below a *", name)
		}
	}
	uris, err := leafURIs(cluster, r.URI)
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: r.CN, Organization: slices.Clone(r.Organization)},
		DNSNames:    r.DNS,
		IPAddresses: ips,
		URIs:        uris,
		ExtKeyUsage: usage,
	}, nil
}

func (k LeafKind) usage() ([]x509.ExtKeyUsage, error) {
	switch k {
	case LeafServer:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, nil
	case LeafClient:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, nil
	case LeafPeer:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, nil
	default:
		return nil, fmt.Errorf("kind %.40q: want %s, %s or %s", string(k), LeafServer, LeafClient, LeafPeer)
	}
}

func checkLeafText(s string) error {
	if n := utf8.RuneCountInString(s); n < 1 || n > maxLeafText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("common name or organization %.80q: want 1 to %d characters, none of them a control character", s, maxLeafText)
	}
	return nil
}

func leafIPs(addrs []netip.Addr) ([]net.IP, error) {
	ips := make([]net.IP, 0, len(addrs))
	for _, addr := range addrs {
		if !addr.IsValid() || addr.IsUnspecified() || addr.Zone() != "" {
			return nil, fmt.Errorf("IP address %q: want one that can be dialled, without a zone", addr)
		}
		ips = append(ips, addr.Unmap().AsSlice())
	}
	return ips, nil
}

func leafURIs(cluster string, texts []string) ([]*url.URL, error) {
	uris := make([]*url.URL, 0, len(texts))
	for _, text := range texts {
		u, err := url.Parse(text)
		switch {
		case err != nil || !u.IsAbs() || len(text) > maxLeafURI:
			return nil, fmt.Errorf("URI %.80q: want an absolute one of at most %d bytes", text, maxLeafURI)
		case ReservedURI(cluster, text):
			return nil, fmt.Errorf("URI %.80q: names below spiffe://%s/ are reserved for agents, operators and servers", text, cluster)
		}
		uris = append(uris, u)
	}
	return uris, nil
}
