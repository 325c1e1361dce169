package nonce

import "errors"

// Reasons for refusing a nonce; every refusal is exactly one of these. Test with errors.Is.
var (
	// ErrMalformed: not a JWT, too long, or without the claims of a nonce.
	ErrMalformed = errors.New("malformed nonce")
	// ErrAlgorithm: signed with anything but EdDSA, or not signed (alg "none").
	ErrAlgorithm = errors.New("nonce is not signed with EdDSA")
	// ErrSignature: not signed by this cluster's registration key.
	ErrSignature = errors.New("nonce has a bad signature")
	// ErrCluster: created for another cluster.
	ErrCluster = errors.New("nonce is for another cluster")
	// ErrKind: an operator's nonce where an agent's is wanted, or the reverse.
	ErrKind = errors.New("nonce is of another kind")
	// ErrShard: created for another shard.
	ErrShard = errors.New("nonce is for another shard")
	// ErrNotYetValid: not valid yet; usually a clock is wrong.
	ErrNotYetValid = errors.New("nonce is not yet valid")
	// ErrExpired: not valid any more.
	ErrExpired = errors.New("nonce has expired")
)
