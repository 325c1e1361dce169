// Package pki implements the trust between the parts of one cluster: its CA, the certificates
// issued by the CA, and the TLS configurations that verify them.
//
// Every certificate has one SPIFFE ID as its only URI name, which contains the holder's role:
//
//	spiffe://{cluster}/{tenant}/agent/{instance id}
//	spiffe://{cluster}/{tenant}/operator/{operator id}
//	spiffe://{cluster}/server/{shard}
//
// Instances may get other certificates from the same CA, so a chain to the CA proves nothing
// by itself: every side also checks the other's SPIFFE ID, and clients check the dialled
// address as well. Only this package may put a name under spiffe://{cluster}/ into a
// certificate (ReservedURI).
//
// Keys are Ed25519 and connections are TLS 1.3 throughout. Certificates and trusted roots are
// read from a Source at every handshake, so both can be renewed without affecting open
// connections.
//
// Nothing here reads a clock or a source of randomness of its own.
package pki
