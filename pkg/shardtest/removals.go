package shardtest

import (
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// acceptance is how long after it was sent a call that accepts removals may take effect: the
// leader may still handle it when its caller has given up.
const acceptance = 5 * time.Minute

// accepts records which removals a refresh is about to accept.
func (b *book) accepts(groups []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range groups {
		b.accepted[g] = time.Now()
	}
}

// judgeRemovals checks that a leader accepts a config that removes a group with instances, or
// sets its size to 0, only if a refresh named it; a takeover never does. The leader decides before
// it sends the config: an instance whose first record was written while that was under way is one
// that was requested a moment ago, and has done no work. The caller holds the lock.
func (b *book) judgeRemovals(last, next *config.Shard, sent time.Time) {
	if last == nil {
		return
	}
	before, _ := last.Resolve(b.groups)
	after, _ := next.Resolve(b.groups)
	living := map[fleet.GroupKey]int{}
	for _, i := range b.records {
		if i.Phase.Active() && !i.OnDemand && !b.landed[i.ID].After(sent) {
			living[i.GroupKey()]++
		}
	}
	for key, n := range living {
		was, is := before[key], after[key]
		at, named := b.accepted[key.String()]
		accepted := named && time.Since(at) < acceptance
		if was.Size > 0 && !was.Removed && (is.Size == 0 || is.Removed) && is.Disabled == "" && !accepted {
			b.violate("a config was accepted that removes %d instances of group %s, which no refresh named", n, key)
		}
	}
}
