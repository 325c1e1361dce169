package plan

import "github.com/nstance/nstance/pkg/fleet"

// dropAsked removes a pending instance whose replacement was requested: no work is on it
// yet, so its replacement need not come first. It counts as a member until its record says
// that it leaves. Running instances are replaced one by one, replacement first.
func (d *decision) dropAsked(i *Instance) bool {
	if i.RemovalAskedAt == nil || i.Phase != fleet.Pending || i.Busy {
		return false
	}
	d.drop(i, ReasonReplaceAsked)
	return true
}
