package leader

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/broadcast"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// troubles are the last problem of each group, until it is over: an instance of
// the group that was created after it shows that creating works again. A problem
// of the whole shard has the zero key, and is over when it was not reported for
// shardTroubleLife.
type troubles struct {
	log  *slog.Logger
	feed broadcast.Feed[fleet.Problem]
	told func(fleet.GroupKey) // after each report

	mu   sync.Mutex
	last map[fleet.GroupKey]fleet.Problem
}

func newTroubles(log *slog.Logger) *troubles {
	return &troubles{log: log, told: func(fleet.GroupKey) {}, last: map[fleet.GroupKey]fleet.Problem{}}
}

// shardTroubleLife outlasts the pause between two attempts at whatever failed.
const shardTroubleLife = 5 * time.Minute

// report logs a problem and keeps it for those who ask.
func (t *troubles) report(p fleet.Problem) {
	attrs := []any{slog.String("reason", p.Reason), slog.String("problem", p.Message)}
	if p.Group != (fleet.GroupKey{}) {
		attrs = append(attrs, slog.String("group", p.Group.String()))
	}
	if p.Instance != "" {
		attrs = append(attrs, slog.String("instance", string(p.Instance)))
	}
	t.log.Warn("problem", attrs...)
	defer t.told(p.Group)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last[p.Group] = p
	t.feed.Publish(p)
}

// progress hears that an instance of the group changed.
func (t *troubles) progress(key fleet.GroupKey, i fleet.Instance) {
	works, ended := i.Provider.ID != "" && i.Phase.Active(), i.Phase == fleet.Deleted
	if !works && !ended {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.last[key]
	if ok && p.Reason != reconcile.ReasonLoadBalancer && p.Reason != delivery.ReasonFiles && (p.Instance == i.ID || works && attemptedAt(i).After(p.At)) {
		delete(t.last, key)
	}
}

// solved hears that a group has no problem of a reason any more.
func (t *troubles) solved(key fleet.GroupKey, reason string) {
	t.mu.Lock()
	over := t.last[key].Reason == reason
	if over {
		delete(t.last, key)
	}
	t.mu.Unlock()
	if over {
		t.told(key)
	}
}

// forget drops the problem of a group that is no more.
func (t *troubles) forget(key fleet.GroupKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, key)
}

// groups are those that have a problem; the zero key is the shard's.
func (t *troubles) groups() []fleet.GroupKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.last))
}

func attemptedAt(i fleet.Instance) time.Time {
	if i.Provider.CreateAttemptedAt == nil {
		return i.CreatedAt
	}
	return *i.Provider.CreateAttemptedAt
}

// of returns the group's problem; none is the zero value.
func (t *troubles) of(key fleet.GroupKey) fleet.Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[key]
}

// ofShard returns the whole shard's problem at a time; none is the zero value.
func (t *troubles) ofShard(now time.Time) fleet.Problem {
	p := t.of(fleet.GroupKey{})
	if now.Sub(p.At) > shardTroubleLife {
		return fleet.Problem{}
	}
	return p
}
