package nonce

import (
	"context"
	"time"
)

// Spender binds a verified nonce to the public key that was shown with it.
//
// Spend returns nil when the nonce is bound to the key by now, durably: because
// this call bound it, or because an earlier one with the same key did, whoever
// got the reply. The caller may then give out a certificate, again if need be.
// It returns ErrSpent when the nonce is bound to another key; that never changes.
// Any other error leaves it open whether the key was bound: the same call can be
// repeated, on this server or another, and will tell.
//
// Of calls that race with different keys, on any number of servers, exactly one
// key wins. That takes one conditional write, not a read and then a write.
//
// claims must come from Verify. key is the SHA-256 of the public key as lowercase
// hex. Implementations are safe for concurrent use.
type Spender interface {
	Spend(ctx context.Context, claims Claims, key string, now time.Time) error
}
