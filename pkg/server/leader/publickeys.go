package leader

import (
	"context"
	"slices"
	"sync"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
)

// publicKeys knows which instances have which public keys, by fingerprint, so that no key
// becomes that of two living instances. It has the keys in the records, which are those of
// all certificates, and those that instances came with in this term. Safe for concurrent
// use.
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

// claim makes keys an instance's, unless other living instances have some of them: it
// returns those, and claims none. What the claim was made for may fail, and the claim stays
// all the same, because a write whose outcome is unknown may have landed; the instance may
// claim its own keys any number of times.
func (k *publicKeys) claim(id fleet.InstanceID, fingerprints ...string) (taken []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range fingerprints {
		if slices.ContainsFunc(k.holders[f], func(other fleet.InstanceID) bool { return other != id && k.living(other) }) {
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

// follow keeps up with a record: one of an instance that is deleted releases its keys.
func (k *publicKeys) follow(i fleet.Instance) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.living(i.ID) { // whatever i says: it may be from before
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

// maxHeld bounds the keys of one instance that are known, since an agent may come with
// ever new ones. It forgets its own alone.
const maxHeld = 2 * fleet.MaxOtherKeys

// hold notes a key of an instance. The caller holds the lock.
func (k *publicKeys) hold(id fleet.InstanceID, fingerprint string) {
	if slices.Contains(k.held[id], fingerprint) {
		return
	}
	if len(k.held[id]) == maxHeld {
		k.unhold(id, k.held[id][0])
		k.held[id] = slices.Delete(k.held[id], 0, 1)
	}
	k.held[id] = append(k.held[id], fingerprint)
	k.holders[fingerprint] = append(k.holders[fingerprint], id)
}

// release forgets the keys of an instance. The caller holds the lock.
func (k *publicKeys) release(id fleet.InstanceID) {
	for _, fingerprint := range k.held[id] {
		k.unhold(id, fingerprint)
	}
	delete(k.held, id)
}

func (k *publicKeys) unhold(id fleet.InstanceID, fingerprint string) {
	left := slices.DeleteFunc(k.holders[fingerprint], func(other fleet.InstanceID) bool { return other == id })
	if len(left) == 0 {
		delete(k.holders, fingerprint)
		return
	}
	k.holders[fingerprint] = left
}

// recordKeys makes durable that an instance has keys, for which it is then given
// certificates: the next term knows them by its record. Keys that are recorded already
// cost nothing.
func (r records) recordKeys(ctx context.Context, id fleet.InstanceID, fingerprints ...string) error {
	if i, ok := r.Get(id); ok {
		if i = i.Clone(); !i.AddKeys(fingerprints...) {
			return nil
		}
	}
	_, err := r.Update(ctx, id, func(i *fleet.Instance) error {
		i.AddKeys(fingerprints...)
		return nil
	})
	return kind(err)
}

// RenewalKey makes the key that an agent renews its certificate with its instance's, and
// that durable. The error is of kind KeyInUse if another living instance has the key.
func (t *Term) RenewalKey(ctx context.Context, caller pki.Caller, fingerprint string) error {
	id := fleet.InstanceID(caller.ID)
	if len(t.keys.claim(id, fingerprint)) > 0 {
		return rpc.KeyInUse
	}
	return t.records.recordKeys(ctx, id, fingerprint)
}
