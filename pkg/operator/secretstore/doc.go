// Package secretstore keeps the operator's identity in Kubernetes: an identity.Store.
//
// The Secret of the certificate is the truth. It holds the certificate, its key and
// the CAs that the servers told (tls.crt, tls.key, ca.crt), which are always written
// together: no crash can leave half of a pair.
//
// The Secret of the key (private.key, public.key) holds the key that a certificate is
// being asked for: at first that of the registration, later that of a renewal under
// way. It is written before a server is asked. After a crash in between, the next
// attempt asks for the same key; once the certificate is stored, both Secrets hold the
// same key until the next renewal. So the next key is whatever is in the Secret of the
// key and not the certificate's, and without a certificate it is the key itself.
//
// The ConfigMap with the cluster's CAs is the user's, and only read. The CAs to trust
// are those in it and those beside the certificate: a CA that servers have told is
// known before the user has put it into the ConfigMap, and one that the user puts there
// counts for an operator that was away while servers changed theirs.
//
// Two operators may run without leader election. A write that follows a read is made on
// condition that nobody wrote since: of two first keys one is stored, and whoever comes
// second fails with ErrChanged, reads again, and finds the other's key or certificate.
// Renewals keep out of each other's way by a Lease besides.
package secretstore
