package plan

import "github.com/nstance/nstance/pkg/fleet"

// dropAsked ends a pending instance that somebody asked to be replaced: no work
// is on it yet, so nothing is gained by making its replacement first. It fills
// its place until its record says that it leaves. Running ones are replaced one
// after the other, each with its replacement ready.
func (d *decision) dropAsked(i *Instance) bool {
	if i.RemovalAskedAt == nil || i.Phase != fleet.Pending || i.Busy {
		return false
	}
	d.drop(i, ReasonReplaceAsked)
	return true
}
