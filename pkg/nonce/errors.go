package nonce

import "errors"

// Why a nonce is refused; every refusal is exactly one of these. Test with
// errors.Is.
var (
	// ErrMalformed: not a JWT, too long, or without the claims of a nonce.
	ErrMalformed = errors.New("malformed nonce")
	// ErrAlgorithm: signed with anything but EdDSA, or not signed (alg "none").
	ErrAlgorithm = errors.New("nonce is not signed with EdDSA")
	// ErrSignature: not signed by this cluster's registration key.
	ErrSignature = errors.New("nonce has a bad signature")
	// ErrCluster: made for another cluster.
	ErrCluster = errors.New("nonce is for another cluster")
	// ErrKind: an operator's nonce where an agent's is wanted, or the reverse.
	ErrKind = errors.New("nonce is of another kind")
	// ErrShard: made for another shard.
	ErrShard = errors.New("nonce is for another shard")
	// ErrNotYetValid: its time has not begun; most often a clock is wrong.
	ErrNotYetValid = errors.New("nonce is not yet valid")
	// ErrExpired: its time is over.
	ErrExpired = errors.New("nonce has expired")
)
