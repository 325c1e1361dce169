// Package secretstore stores the operator's identity in Kubernetes: an identity.Store.
//
// The Secret of the certificate is authoritative. It holds the certificate, its key and the
// CAs received from servers (tls.crt, tls.key, ca.crt), which are always written together: no
// crash can leave half of a pair.
//
// The Secret of the key (private.key, public.key) holds the key for which a certificate is
// being requested: first that of the registration, later that of a renewal in progress. It is
// written before the request. After a crash in between, the next attempt uses the same key;
// once the certificate is stored, both Secrets hold the same key until the next renewal. So
// the next key is the one in the Secret of the key if that differs from the certificate's;
// without a certificate it is the current key.
//
// The ConfigMap with the cluster's CAs is the user's, and only read. The trusted CAs are those
// in it and those stored with the certificate: a CA received from servers is trusted before
// the user has added it to the ConfigMap, and one that the user adds helps an operator that
// was down while servers changed theirs.
//
// Two operators may run without leader election. A write is conditional on the preceding read:
// of two first keys one is stored, and the second write fails with ErrChanged, reads again,
// and finds the other's key or certificate. A Lease also serializes renewals.
package secretstore
