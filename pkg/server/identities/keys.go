package identities

import (
	"slices"
	"sync"

	"github.com/nstance/nstance/pkg/fleet"
)

// Keys maps public keys, by fingerprint, to instances, so that no two living instances
// share a key. It has the keys in the records, which cover all certificates, and those that
// instances presented in this term. Safe for concurrent use.
type Keys struct {
	living func(fleet.InstanceID) bool // must not wait for a write

	mu      sync.Mutex
	holders fleet.Holders[string] // more than one: shared before this check existed
	held    map[fleet.InstanceID][]string
}

// NewKeys returns the keys of the living instances. living reports whether an instance lives.
func NewKeys(living func(fleet.InstanceID) bool, records []fleet.Instance) *Keys {
	k := &Keys{living: living, holders: fleet.Holders[string]{}, held: map[fleet.InstanceID][]string{}}
	for _, i := range records {
		k.Follow(i)
	}
	return k
}

// Claim assigns keys to an instance, unless other living instances have some of them: it then
// returns those and claims none. A claim stays even if the operation it was made for fails,
// because a write of unknown outcome may have landed; it is idempotent for the instance's own
// keys.
func (k *Keys) Claim(id fleet.InstanceID, fingerprints ...string) (taken []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range fingerprints {
		if heldByAnother(k.holders[f], id, k.living) {
			taken = append(taken, f)
		}
	}
	if len(taken) > 0 {
		return taken
	}
	for _, f := range fingerprints {
		k.hold(id, f)
	}
	return nil
}

// heldByAnother reports whether a living instance other than this one is among holders.
func heldByAnother(holders []fleet.InstanceID, id fleet.InstanceID, living func(fleet.InstanceID) bool) bool {
	return slices.ContainsFunc(holders, func(other fleet.InstanceID) bool { return other != id && living(other) })
}

// Follow applies a record; one of a deleted instance releases its keys.
func (k *Keys) Follow(i fleet.Instance) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.living(i.ID) { // regardless of i, which may be stale
		k.release(i.ID)
		return
	}
	if i.PublicKeySHA256 != "" {
		k.hold(i.ID, i.PublicKeySHA256)
	}
	for _, f := range i.OtherKeysSHA256 {
		k.hold(i.ID, f)
	}
}

// maxHeld bounds the keys kept of one instance, because an agent may present ever new ones. Only
// its own oldest keys are dropped.
const maxHeld = 2 * fleet.MaxOtherKeys

// hold adds a key of an instance. The caller holds mu.
func (k *Keys) hold(id fleet.InstanceID, fingerprint string) {
	if slices.Contains(k.held[id], fingerprint) {
		return
	}
	if len(k.held[id]) == maxHeld {
		k.holders.Remove(k.held[id][0], id)
		k.held[id] = slices.Delete(k.held[id], 0, 1)
	}
	k.held[id] = append(k.held[id], fingerprint)
	k.holders.Add(fingerprint, id)
}

// release drops the keys of an instance. The caller holds mu.
func (k *Keys) release(id fleet.InstanceID) {
	for _, fingerprint := range k.held[id] {
		k.holders.Remove(fingerprint, id)
	}
	delete(k.held, id)
}
