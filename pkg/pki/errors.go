package pki

import "errors"

// Reasons for refusing a key, a certificate or a peer. Test with errors.Is; the wrapping error
// names the certificate and what would be valid.
var (
	// ErrMalformed: not valid PEM, or not the expected key or certificate.
	ErrMalformed = errors.New("malformed PEM")
	// ErrMismatch: a certificate and a private key that do not belong together.
	ErrMismatch = errors.New("certificate and key do not match")
	// ErrNoCertificate: the peer sent none, or this side has none.
	ErrNoCertificate = errors.New("no certificate")
	// ErrUntrusted: not signed by a CA of the bundle for this use.
	ErrUntrusted = errors.New("certificate is not trusted")
	// ErrExpired: it, or the CA, has expired.
	ErrExpired = errors.New("certificate has expired")
	// ErrNotYetValid: not valid yet; usually a clock is wrong.
	ErrNotYetValid = errors.New("certificate is not yet valid")
	// ErrIdentity: its names are not those of a member of this cluster.
	ErrIdentity = errors.New("certificate does not name a member of this cluster")
	// ErrWrongPeer: a member of the cluster, but of another role or shard.
	ErrWrongPeer = errors.New("certificate belongs to another peer")
	// ErrAddress: the server's certificate does not contain the dialled address.
	ErrAddress = errors.New("certificate does not name the address")
)
