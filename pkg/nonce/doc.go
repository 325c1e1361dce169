// Package nonce is the registration nonce: a JWT (RFC 7519) with which a new
// instance or operator proves that the cluster asked for it, before it has a
// certificate.
//
// A nonce is signed with the cluster's registration key, EdDSA (RFC 8037) and
// nothing else, and says what it is for: an agent's names the instance and the
// shard that made it, an operator's the cluster. It is good from nbf to exp, give
// or take the Leeway.
//
// Spending a nonce binds the first public key that is shown with it: the same
// nonce with the same key succeeds again within its life, so a lost reply or a
// new leader costs nothing, and with another key it is refused for ever. Of calls
// that race with different keys, on any number of servers, exactly one key wins:
// that takes one conditional write, which is pkg/server/registration's to make.
// This package does no I/O and knows no clock.
package nonce
