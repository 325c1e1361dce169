package leader

import (
	"slices"
	"sync"

	"github.com/nstance/nstance/pkg/fleet"
)

// publicKeys knows which instances have which public keys, by fingerprint, so that no key
// becomes that of two living instances. It has what can be known: the keys in the records,
// and those that instances came with in this term. A key that a certificate was renewed
// with is in no record, so the next term does not know it. Safe for concurrent use.
type publicKeys struct {
	living func(fleet.InstanceID) bool // must not wait for a write

	mu      sync.Mutex
	holders map[string][]fleet.InstanceID // more than one: they had it before there was this check
	held    map[fleet.InstanceID][]string
}

func newPublicKeys(living func(fleet.InstanceID) bool, records []fleet.Instance) *publicKeys {
	k := &publicKeys{living: living, holders: map[string][]fleet.InstanceID{}, held: map[fleet.InstanceID][]string{}}
	for _, i := range records {
		k.follow(i)
	}
	return k
}

// claim makes a key an instance's, unless another living instance has it. What the claim
// was made for may fail, and the claim stays all the same, because a write whose outcome is
// unknown may have landed; the instance may claim its own key any number of times.
func (k *publicKeys) claim(id fleet.InstanceID, fingerprint string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, other := range k.holders[fingerprint] {
		if other != id && k.living(other) {
			return false
		}
	}
	k.hold(id, fingerprint)
	return true
}

// follow keeps up with a record: one of an instance that is deleted releases its keys.
func (k *publicKeys) follow(i fleet.Instance) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.living(i.ID): // whatever i says: it may be from before
		k.release(i.ID)
	case i.PublicKeySHA256 != "":
		k.hold(i.ID, i.PublicKeySHA256)
	}
}

// hold notes a key of an instance. The caller holds the lock.
func (k *publicKeys) hold(id fleet.InstanceID, fingerprint string) {
	if slices.Contains(k.held[id], fingerprint) {
		return
	}
	k.held[id] = append(k.held[id], fingerprint)
	k.holders[fingerprint] = append(k.holders[fingerprint], id)
}

// release forgets the keys of an instance. The caller holds the lock.
func (k *publicKeys) release(id fleet.InstanceID) {
	for _, fingerprint := range k.held[id] {
		left := slices.DeleteFunc(k.holders[fingerprint], func(other fleet.InstanceID) bool { return other == id })
		if len(left) == 0 {
			delete(k.holders, fingerprint)
			continue
		}
		k.holders[fingerprint] = left
	}
	delete(k.held, id)
}
