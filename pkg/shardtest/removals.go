package shardtest

import (
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// acceptance is how long after it was sent a call that accepts removals may have its
// effect: a leader may still be at it when its caller has left.
const acceptance = 5 * time.Minute

// accepts notes which removals a refresh is about to accept.
func (b *book) accepts(groups []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range groups {
		b.accepted[g] = time.Now()
	}
}

// judgeRemovals refuses that a leader accepts a config which takes a group away that has
// instances, or sets its size to 0, unless a refresh named it: no takeover does so by
// itself. The caller holds the lock.
func (b *book) judgeRemovals(last, next *config.Shard) {
	if last == nil {
		return
	}
	before, _ := last.Resolve(b.dynamic)
	after, _ := next.Resolve(b.dynamic)
	living := map[fleet.GroupKey]int{}
	for _, i := range b.records {
		if i.Phase.Active() && !i.OnDemand {
			living[i.GroupKey()]++
		}
	}
	for key, n := range living {
		was, is := before[key], after[key]
		at, named := b.accepted[key.String()]
		accepted := named && time.Since(at) < acceptance
		if was.Size > 0 && !was.Removed && (is.Size == 0 || is.Removed) && is.Disabled == "" && !accepted {
			b.violate("a config was accepted that takes away %d instances of group %s, which no refresh named", n, key)
		}
	}
}
