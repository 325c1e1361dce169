// Package nonce implements the registration nonce: a JWT (RFC 7519) that proves that the
// cluster asked for a new instance or operator, before it has a certificate.
//
// A nonce is signed with the cluster's registration key, always with EdDSA (RFC 8037), and
// says what it is for: an agent's names the instance and its shard, an operator's the cluster.
// It is valid from nbf to exp, within the Leeway.
//
// Spending a nonce binds the first public key presented with it: the same nonce with the same
// key succeeds again while it is valid, so that a lost response or a new leader is harmless,
// and with another key it is refused for ever. If calls with different keys race, on any
// number of servers, exactly one key wins: that takes one conditional write, made by
// pkg/server/registration. This package does no I/O and reads no clock.
package nonce
