package reconcile

import (
	"errors"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// This file is about problems that last: they are told when they begin, some of them
// again now and then, and are over when what they tell of is over, whatever else works
// or fails meanwhile.

// Lasts reports whether problems of a reason last until what they tell of is over,
// and are among those of Lasting meanwhile.
func Lasts(reason string) bool {
	switch reason {
	case ReasonThrottled, ReasonCreatesFailing, ReasonDeleteRefused, ReasonDeleteStuck:
		return true
	default:
		return false
	}
}

// Lasting are the problems of the shard and of all groups that last.
func (l *Loop) Lasting() []fleet.Problem {
	all := l.LastingOf(fleet.GroupKey{})
	keys := append(l.deletions.groups(), l.pacing.failed()...)
	slices.SortFunc(keys, fleet.GroupKey.Compare)
	for _, key := range slices.Compact(keys) {
		all = append(all, l.LastingOf(key)...)
	}
	slices.SortStableFunc(all, func(a, b fleet.Problem) int { return a.At.Compare(b.At) })
	return all
}

// LastingOf are those of one group; without a key, of the shard.
func (l *Loop) LastingOf(key fleet.GroupKey) []fleet.Problem {
	if key != (fleet.GroupKey{}) {
		return append(l.pacing.problems(key), l.deletions.problems(key)...)
	}
	var all []fleet.Problem
	for _, t := range []*turns{l.cloud.mutations, l.cloud.reads} {
		if p := t.problem(); p.Message != "" {
			all = append(all, p)
		}
	}
	return all
}

// toldAsLasting reports whether an error is part of a problem that lasts, so that it
// is not told by itself. Load balancers have a throttling of their own.
func toldAsLasting(err error) bool {
	reason := ReasonProvider
	if r := (*reasoned)(nil); errors.As(err, &r) {
		reason = r.reason
	}
	return reason == ReasonDeleteRefused || reason == ReasonProvider && errors.Is(err, provider.ErrThrottled)
}
