package plan

import (
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// settle takes the ids out of the leaving list that are gone for good, and
// those of on-demand instances, which were never the group's to give up.
func (d *decision) settle() {
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
		d.act(Action{Kind: Settle, IDs: gone})
	}
}

// held reports whether the group's record is missing: nothing that works is removed then.
func (t *tally) held() bool { return t.view.Group.RecordMissing != "" }

// dropUnmade ends a pending instance that never was more than a record, of a group
// without a known definition: none will be made, and the group is not there for it.
func (d *decision) dropUnmade(i *Instance) {
	if d.held() && i.Phase == fleet.Pending && !i.Busy && !mayBeMade(i) && i.VM != VMAlive {
		d.drop(i, ReasonStray)
	}
}

// forget drops a group that was to go, or of which nothing but its instances was
// known, once nothing but tombstones is left of it. Their records are pruned whether the group is known or not.
func (d *decision) forget() {
	unknown := d.held() && d.view.Group.Disabled != "" && d.view.Group.Template == ""
	if (d.view.Group.Removed || unknown) && d.records == 0 {
		d.act(Action{Kind: Forget, Reason: ReasonGroupRemoved})
	}
}
