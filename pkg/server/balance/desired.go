package balance

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file decides what is to be registered with which target of a load
// balancer. It does nothing itself.

// Member is an instance of a group, as far as load balancers are concerned.
type Member struct {
	fleet.Instance
	Dead     bool // its machine will not work again
	Reported bool // its agent has reported since the takeover
	Stopping bool // its agent says that it is being stopped, or the provider announced its end
}

// registration is one instance's with one target.
type registration struct {
	id     fleet.InstanceID
	target string
}

func compare(a, b registration) int {
	return cmp.Or(strings.Compare(string(a.id), string(b.id)), strings.Compare(a.target, b.target))
}

// state is where a registration is, or is to be.
type state int

const (
	unset        state = iota // not known: nothing was heard of it, or a call's outcome is unknown; or to be left as it is
	registered                // the target sends traffic to the instance
	deregistered              // it does not
)

// desiredOf says whether an instance of a group with load balancers is to get
// traffic: from its first report in which it does well, until it leaves or its
// machine is dead. One that has not been heard of since the takeover stays as
// it is, and so does one that is only silent, or says that it is being stopped:
// that is judged elsewhere, and ends in its leaving or in its going on.
func desiredOf(m Member) state {
	switch {
	case !m.Phase.Active() || m.Dead:
		return deregistered
	case m.Phase != fleet.Running || m.Provider.ID == "" || !m.Reported || m.Stopping:
		return unset
	default:
		return registered
	}
}

// call is what is asked of the provider for a registration.
type call string

const (
	none       call = ""
	register   call = "register"
	deregister call = "deregister"
)

// due is the call that brings a registration to where it is desired. read is
// whether the target's registrations are known: until then nothing is
// registered, since most instances are already after a takeover. Deregistering
// does not wait for that.
func due(actual, desired state, read bool) call {
	switch {
	case desired == registered && actual != registered && read:
		return register
	case desired == deregistered && actual != deregistered:
		return deregister
	default:
		return none
	}
}

// targetsOf maps the targets of a group's load balancers to what the config
// calls them. A load balancer that is not defined has none.
func targetsOf(g fleet.Group, defined map[string][]string) map[string]string {
	labels := map[string]string{}
	for _, name := range g.LoadBalancers {
		for n, target := range defined[name] {
			labels[target] = fmt.Sprintf("load_balancers.%s.target_group_arns[%d]", name, n)
		}
	}
	return labels
}
