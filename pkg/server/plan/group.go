package plan

import (
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// clearLeaving removes ids from the leaving list: those of instances that are gone, and
// those of on-demand instances, which don't count towards the size.
func (d *decision) clearLeaving() {
	if len(d.leaving) == 0 {
		return
	}
	here := make(map[fleet.InstanceID]bool)
	for n := range d.view.Instances {
		if i := &d.view.Instances[n]; d.leaving[i.ID] && !i.OnDemand && i.Phase != fleet.Deleted {
			here[i.ID] = true
		}
	}
	var gone []fleet.InstanceID
	for id := range d.leaving {
		if !here[id] {
			gone = append(gone, id)
		}
	}
	if len(gone) > 0 {
		slices.SortFunc(gone, compareAge)
		d.act(Action{Kind: ClearLeaving, IDs: gone})
	}
}

// forgetAbort drops an abort once another definition than the refused one has been rolled out: the group
// has all its instances, and they have it. Until then that could have been a mistake.
func forgetAbort(d *decision) {
	g := d.view.Group
	if !g.Aborted || g.Asked != nil || d.held() || d.view.Filled > 0 {
		return
	}
	have := 0
	for n := range d.view.Instances {
		i := &d.view.Instances[n]
		switch {
		case i.OnDemand || i.Phase == fleet.Deleted:
		case i.Phase != fleet.Running || i.Hashes.Outdated(g.Hashes):
			return
		default:
			have++
		}
	}
	if have > 0 && have >= g.Size {
		d.act(Action{Kind: ForgetAbort, Refused: g.Refuses})
	}
}

// held reports whether the group's record is missing: no working instance is removed then.
func (t *tally) held() bool { return t.view.Group.RecordMissing != "" }

// dropUnmade removes a pending instance without a machine if its group's record is missing:
// without a definition no machine can be created for it.
func (d *decision) dropUnmade(i *Instance) {
	if d.held() && i.Phase == fleet.Pending && !i.Busy && !mayBeMade(i) && i.VM != VMAlive {
		d.drop(i, ReasonStray)
	}
}

// forget removes a group that was removed, or is known only by its instances, once only
// tombstones are left. Those are pruned whether the group is known or not.
func (d *decision) forget() {
	unknown := d.held() && d.view.Group.Disabled != "" && d.view.Group.Template == ""
	if (d.view.Group.Removed || unknown) && d.records == 0 {
		d.act(Action{Kind: Forget, Reason: ReasonGroupRemoved})
	}
}
