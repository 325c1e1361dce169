package reconcile

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// This file decides who is registered with which target of a load balancer. It
// does nothing itself.

// seat is one instance's place with one target.
type seat struct {
	id     fleet.InstanceID
	target string
}

func compareSeats(a, b seat) int {
	return cmp.Or(strings.Compare(string(a.id), string(b.id)), strings.Compare(a.target, b.target))
}

// sitter is what is known and wanted of a seat. Loop.mu guards it.
type sitter struct {
	key   fleet.GroupKey
	ref   provider.Ref
	state standing
	want  wish

	busy       bool      // a call is under way
	answeredAt time.Time // when the last call ended
	failures   int       // calls that failed since the last one that did not
	quietUntil time.Time // after a failure
	told       string    // the last failure
	leavingAt  time.Time // when it was first to be out
}

// givenUp reports whether the seat of an instance of which no record is left was
// tried to be cleared for long enough: what refuses for good is not asked for
// ever.
func (x *sitter) givenUp(now time.Time) bool {
	return !x.busy && x.want == out && now.Sub(x.leavingAt) >= giveUpAfter
}

// standing is whether an instance is registered with a target.
type standing int

const (
	unsure     standing = iota // nothing was heard of it, or a call's outcome is unknown
	registered                 // it is
	absent                     // it is not
)

// wish is what is to become of a seat.
type wish int

const (
	keep wish = iota // as it is
	in               // registered
	out              // not registered
)

// wishFor says whether an instance of a group with load balancers is to get
// traffic: from its first report in which it does well, until it leaves or its
// machine is dead. One that has not been heard of since the takeover stays as it
// is, and so does one that is only silent, or says that it is being stopped: that
// is judged elsewhere, and ends in its leaving or in its going on.
func wishFor(i plan.Instance) wish {
	h := i.Health
	switch {
	case !i.Phase.Active() || dead(i.VM):
		return out
	case i.Phase != fleet.Running || i.Provider.ID == "" || h.LastReportAt.IsZero() || !h.ShuttingDownAt.IsZero() || h.Notice != nil:
		return keep
	default:
		return in
	}
}

// wishesOf says it for all instances of a group. Nobody new is registered in one
// that is frozen.
func wishesOf(v plan.View, frozen bool) map[fleet.InstanceID]wish {
	wishes := make(map[fleet.InstanceID]wish, len(v.Instances))
	for _, i := range v.Instances {
		w := wishFor(i)
		if frozen && w == in {
			w = keep
		}
		wishes[i.ID] = w
	}
	return wishes
}

// call is what is asked of the provider for a seat.
type call int

const (
	none call = iota
	register
	deregister
)

// due is the call that brings a seat from where it is to where it is wanted. read
// is whether it is known who is registered with the target: until then nobody is
// registered, since most are already after a takeover. Who leaves does not wait
// for that.
func due(state standing, want wish, read bool) call {
	switch {
	case want == in && state != registered && read:
		return register
	case want == out && state != absent:
		return deregister
	default:
		return none
	}
}

// targetsOf maps the targets of a group's load balancers to what the config calls
// them. A load balancer that is not defined has none.
func targetsOf(g fleet.Group, defined map[string][]string) map[string]string {
	labels := map[string]string{}
	for _, name := range g.LoadBalancers {
		for n, target := range defined[name] {
			labels[target] = label(name, n)
		}
	}
	return labels
}

func label(name string, n int) string {
	return fmt.Sprintf("load_balancers.%s.target_group_arns[%d]", name, n)
}
