package balance

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file decides which instances are to be registered with which targets. It has no
// side effects.

// Member is an instance of a group, with what decides about its registrations.
type Member struct {
	fleet.Instance
	Dead     bool // its machine will not work again
	Reported bool // its agent has reported since the takeover
	Stopping bool // its agent is being stopped, or there is a termination notice
	Bare     bool // it is known to lack the files that its group requires
}

// registration is the registration of one instance with one target.
type registration struct {
	id     fleet.InstanceID
	target string
}

func compare(a, b registration) int {
	return cmp.Or(strings.Compare(string(a.id), string(b.id)), strings.Compare(a.target, b.target))
}

// state is the actual or desired state of a registration.
type state int

const (
	unset        state = iota // actual: unknown; desired: leave it as it is
	registered                // the target sends traffic to the instance
	deregistered              // the target sends no traffic to the instance
)

// desiredOf returns the desired state of an instance's registrations: registered from its
// first report, with the files that its group requires, until it leaves or its machine is dead.
// Instances that have not reported since the takeover, are silent or being stopped, or lost their
// files, keep their registrations: package plan decides whether they leave.
func desiredOf(m Member) state {
	switch {
	case !m.Phase.Active() || m.Dead:
		return deregistered
	case m.Phase != fleet.Running || m.Provider.ID == "" || !m.Reported || m.Stopping || m.Bare:
		return unset
	default:
		return registered
	}
}

// call is a provider call for a registration.
type call string

const (
	none       call = ""
	register   call = "register"
	deregister call = "deregister"
)

// due returns the call that brings a registration to its desired state. read is whether the
// target's registrations are known. Until then no instance is registered, since after a
// takeover most are registered already; deregistering does not wait.
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

// targetsOf maps the targets of a group's load balancers to their paths in the config. A load
// balancer that is not defined has none.
func targetsOf(g fleet.Group, defined map[string][]string) map[string]string {
	labels := map[string]string{}
	for _, name := range g.LoadBalancers {
		for n, target := range defined[name] {
			labels[target] = fmt.Sprintf("load_balancers.%s.target_group_arns[%d]", name, n)
		}
	}
	return labels
}
