package reconcile

import (
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// This file is about why machines end, in the provider's words. They are for people:
// nothing is decided by them.

// ReasonDied is the reason of problems with machines that end before their agent
// has registered.
const ReasonDied = "MachineDied"

// hear takes over what the provider says of a VM whose state it tells. What it said of
// a VM's end stays when it has no more to say.
func (b *observation) hear(vm provider.VM) {
	if why := vm.Why(); why != "" || !dead(b.vm) {
		b.why = why
	}
}

// withWhy adds to the reason for which an instance leaves what the provider says of
// its machine's end.
func (b *observation) withWhy(reason string) string {
	if why := b.why; why != "" && (reason == plan.ReasonVMDown || reason == plan.ReasonVMGone) {
		return reason + ": " + why
	}
	return reason
}

// diedYoung is the problem of an instance that leaves for a reason before its agent
// has registered; nil when its machine has not died. Of one that lived its group needs
// to know no more than that it is replaced.
func diedYoung(was fleet.Instance, planned, why string) error {
	if was.Phase != fleet.Pending || planned != plan.ReasonVMDown && planned != plan.ReasonVMGone {
		return nil
	}
	return because(ReasonDied, errors.New(unregistered(was.ID, why)))
}

func unregistered(id fleet.InstanceID, why string) string {
	return fmt.Sprintf("the machine of instance %s ended before its agent registered: %s", id, why)
}
