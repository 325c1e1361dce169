package shardtest

import (
	"math"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// want is the desired state of a group by the store, and until when it applied.
type want struct {
	infra string // the Infra hash
	size  int
	room  int       // the size plus the surge
	until time.Time // zero: it still applies
}

// memory is how long a leader may act on an earlier state of the store, because its reads fail or
// its writes are slow.
const memory = 15 * time.Minute

func (w *want) recent() bool { return w.until.IsZero() || time.Since(w.until) <= memory }

// rewant records the current desired state: a leader runs config/, or the last accepted config.
func (b *book) rewant() {
	b.ends.evidence.testify(b.applied, b.groups, b.hands.credible(), b.texts.kept)
	now := map[fleet.GroupKey]map[want]bool{}
	for _, shard := range []*config.Shard{b.static, b.applied, b.texts.instead} {
		if shard != nil {
			askAll(now, b, shard)
		}
	}
	for key, list := range b.wanted {
		for _, w := range list {
			switch {
			case !w.until.IsZero():
			case now[key][*w]:
				delete(now[key], *w) // it is listed
			default:
				w.until = time.Now()
			}
		}
	}
	for key := range b.wanted {
		if now[key] == nil {
			b.pace.forget(key)
		}
	}
	for key, set := range now {
		for w := range set {
			b.wanted[key] = append(b.wanted[key], &w)
		}
	}
}

// askAll records the desired state of all groups by a config.
func askAll(now map[fleet.GroupKey]map[want]bool, b *book, shard *config.Shard) {
	groups, _ := shard.Resolve(b.groups)
	for key, g := range groups {
		ask(now, key, g)
		if b.hands.mayMiss(key) { // a leader may hold it at the number of its instances, and act before its record says so
			g.Size = max(g.Size, living(b, key))
			ask(now, key, g)
		}
	}
	for key, left := range b.hands.left { // a new leader may act on it
		if g, defined, _ := shard.ResolveGroup(key, left); defined {
			ask(now, key, g)
		}
	}
}

// living counts the members of a group that do not leave.
func living(b *book, key fleet.GroupKey) (n int) {
	for _, i := range b.records {
		if !i.OnDemand && i.GroupKey() == key && i.Phase.Active() {
			n++
		}
	}
	return n
}

// ask records the desired state of a group by a config and a record.
func ask(now map[fleet.GroupKey]map[want]bool, key fleet.GroupKey, g fleet.Group) {
	if now[key] == nil {
		now[key] = map[want]bool{}
	}
	now[key][want{infra: g.Hashes.Infra, size: g.Size, room: g.Size + g.MaxSurge.Of(g.Size)}] = true
}

// most returns the maximum number of machines that a leader may want for a group.
func (b *book) most(key fleet.GroupKey) (most int) {
	most = 1 // for the rest of an undefined group
	for _, w := range b.wanted[key] {
		if w.recent() {
			most = max(most, w.room)
		}
	}
	return most
}

// least returns the smallest size that a leader may want for a group.
func (b *book) least(key fleet.GroupKey) int {
	least := math.MaxInt
	for _, w := range b.wanted[key] {
		if w.recent() {
			least = min(least, w.size)
		}
	}
	return least
}

// mayDrift reports whether a leader may want another Infra hash for an instance.
func (b *book) mayDrift(i fleet.Instance) bool {
	for _, w := range b.wanted[i.GroupKey()] {
		if w.recent() && w.infra != i.Hashes.Infra {
			return true
		}
	}
	return false
}
