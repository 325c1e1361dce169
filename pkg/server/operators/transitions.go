package operators

import (
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Transitions remembers since when each group's conditions have the status that they have, as
// seen in one term. Safe for concurrent use.
type Transitions struct {
	now func() time.Time

	mu     sync.Mutex
	groups map[fleet.GroupKey]map[string]transition // by the condition's type
}

type transition struct {
	status string
	at     time.Time
}

// NewTransitions returns the transitions of a term that begins.
func NewTransitions(now func() time.Time) *Transitions {
	return &Transitions{now: now, groups: map[fleet.GroupKey]map[string]transition{}}
}

// stamp sets when each of a group's conditions became what it is. A type that is missing has
// ended: should it come back, it begins anew.
func (t *Transitions) stamp(key fleet.GroupKey, conditions []*nstancev1.Condition) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	before, after := t.groups[key], make(map[string]transition, len(conditions))
	for _, c := range conditions {
		is := transition{c.GetStatus(), now}
		if was, ok := before[c.GetType()]; ok && was.status == is.status {
			is = was
		}
		after[c.GetType()] = is
		c.LastTransitionTime = timestamppb.New(is.at)
	}
	t.groups[key] = after
}

// Tidy drops the groups that are gone, which without watches nothing else does.
func (t *Transitions) Tidy(gone func(fleet.GroupKey) bool) {
	t.mu.Lock()
	keys := slices.Collect(maps.Keys(t.groups))
	t.mu.Unlock()
	for _, key := range keys {
		if gone(key) {
			t.forget(key)
		}
	}
}

// forget drops a group that is gone.
func (t *Transitions) forget(key fleet.GroupKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.groups, key)
}
