package plan

import "github.com/nstance/nstance/pkg/fleet"

// dropAsked ends a pending instance that somebody asked to be replaced: no work
// is on it yet, so nothing is gained by making its replacement first. It fills
// its place until its record says that it leaves.
func (d *decision) dropAsked(i *Instance) bool {
	if i.RemovalAskedAt == nil || i.Phase != fleet.Pending || i.Busy {
		return false
	}
	d.drop(i, ReasonReplaceAsked)
	return true
}

// askedReplacement names the oldest running instance that somebody asked to be
// replaced. It does not wait for whatever else goes on in the group; several
// are taken one after the other, each with its replacement ready.
func (d *decision) askedReplacement() (*member, string) {
	return d.oldest(func(m *member) bool { return asked(m) && running(m) }), ReasonReplaceAsked
}

func asked(m *member) bool { return m.RemovalAskedAt != nil }
