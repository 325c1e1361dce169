// Package pki is the trust between the parts of one cluster: its CA, the
// certificates that the CA gives out, and the TLS configurations that check
// them.
//
// Every certificate carries one SPIFFE id as its only URI name, from which the
// holder's role is read:
//
//	spiffe://{cluster}/{tenant}/agent/{instance id}
//	spiffe://{cluster}/{tenant}/operator/{operator id}
//	spiffe://{cluster}/server/{shard}
//
// Instances may get other certificates from the same CA, so a chain to the CA
// proves nothing by itself: every side also checks the other's SPIFFE id, and
// clients check the address they dialled as well. Nothing but this package may
// put a name under spiffe://{cluster}/ into a certificate (ReservedURI).
//
// Keys are Ed25519 and connections are TLS 1.3 throughout. Certificates and
// trusted roots are read from a Source at every handshake, so both are renewed
// without touching a connection that is open.
//
// Nothing here reads a clock or makes randomness of its own.
package pki
