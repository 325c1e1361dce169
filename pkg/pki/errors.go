package pki

import "errors"

// Why a key, a certificate or a peer is refused. Test with errors.Is; the error
// around them names the certificate and what would have been valid.
var (
	// ErrMalformed: not the PEM, the key or the certificate it should be.
	ErrMalformed = errors.New("malformed PEM")
	// ErrMismatch: a certificate and a private key that don't belong together.
	ErrMismatch = errors.New("certificate and key do not match")
	// ErrNoCertificate: the peer sent none, or we have none to send.
	ErrNoCertificate = errors.New("no certificate")
	// ErrUntrusted: no CA of the bundle signed it for this use.
	ErrUntrusted = errors.New("certificate is not trusted")
	// ErrExpired: its time, or the CA's, is over.
	ErrExpired = errors.New("certificate has expired")
	// ErrNotYetValid: its time has not begun; most often a clock is wrong.
	ErrNotYetValid = errors.New("certificate is not yet valid")
	// ErrIdentity: its names are not those of a member of this cluster.
	ErrIdentity = errors.New("certificate does not name a member of this cluster")
	// ErrWrongPeer: a member of the cluster, but not one of the wanted role or
	// shard.
	ErrWrongPeer = errors.New("certificate belongs to another peer")
	// ErrAddress: the server's certificate does not name the address dialled.
	ErrAddress = errors.New("certificate does not name the address")
)
