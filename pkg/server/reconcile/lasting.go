package reconcile

import (
	"errors"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// This file is about problems that last: they are told when they begin, and are over
// when what they tell of is over, whatever else works or fails meanwhile.

// Lasts reports whether problems of a reason last until what they tell of is over,
// and are among those of Lasting meanwhile.
func Lasts(reason string) bool { return reason == ReasonThrottled }

// Lasting are the problems of the shard that last.
func (l *Loop) Lasting() (all []fleet.Problem) {
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
	return reason == ReasonProvider && errors.Is(err, provider.ErrThrottled)
}
