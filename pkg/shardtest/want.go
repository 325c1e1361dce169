package shardtest

import (
	"math"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// want is what a config in the store asks of a group, and how long it did.
type want struct {
	infra string // the hash of what its machines are built with
	size  int
	room  int       // for the size, and what may be beyond it while it is rotated
	until time.Time // zero: it still does
}

// memory is how long a leader may act on what the store held before: it could
// not read the new, or its writes are slow.
const memory = 15 * time.Minute

func (w *want) recent() bool { return w.until.IsZero() || time.Since(w.until) <= memory }

// rewant notes what the store asks for now: a leader runs what config/ says, or
// what it last accepted.
func (b *book) rewant() {
	b.ends.evidence.testify(b.applied, b.dynamic)
	now := map[fleet.GroupKey]map[want]bool{}
	for _, shard := range []*config.Shard{b.static, b.applied} {
		if shard == nil {
			continue
		}
		groups, _ := shard.Resolve(b.dynamic)
		for key, g := range groups {
			if now[key] == nil {
				now[key] = map[want]bool{}
			}
			now[key][want{infra: g.Hashes.Infra, size: g.Size, room: g.Size + g.MaxSurge.Of(g.Size)}] = true
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

// most is how many machines at most a leader may have in mind for a group.
func (b *book) most(key fleet.GroupKey) (most int) {
	most = 1 // for what is left of one that nothing defines any more
	for _, w := range b.wanted[key] {
		if w.recent() {
			most = max(most, w.room)
		}
	}
	return most
}

// least is the smallest size that a leader may have in mind for a group.
func (b *book) least(key fleet.GroupKey) int {
	least := math.MaxInt
	for _, w := range b.wanted[key] {
		if w.recent() {
			least = min(least, w.size)
		}
	}
	return least
}

// mayDrift reports whether some leader may have another build in mind for an
// instance than the one that it has.
func (b *book) mayDrift(i fleet.Instance) bool {
	for _, w := range b.wanted[i.GroupKey()] {
		if w.recent() && w.infra != i.Hashes.Infra {
			return true
		}
	}
	return false
}
