package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// orphans judges the VMs of ours that no record means.
//
// An orphan is deleted, but only after two sweeps saw it, a Get confirmed it,
// and its group runs at size without it: so a record that was removed under a
// living agent is replaced first. More orphans than orphanLimit are not
// deleted: a person is asked.
//
// A lost bucket, or a server that was pointed at the wrong one, looks just like
// that, and there to create what seems to be missing would be as wrong as to
// delete what seems to be too much. So when the VMs that had a record, or may
// have had one, exceed the limit (those without one at the takeover, and those
// whose record vanished since), the loop holds: no pass, no create, no delete,
// until a sweep finds that the records are back or the VMs are gone. Orphans
// that turn up in a running term are no sign of a lost store, and hold up
// nothing but their own deletion.
type orphans struct {
	lost    map[string]time.Time // instance and provider ids of VMs that may have had a record: when each was last an orphan
	sweeps  map[string]int       // by provider id: sweeps in a row that saw it
	absent  map[string]bool      // by provider id: its record was read by its key, and there is none
	tooMany bool                 // none is deleted
}

func newOrphans() orphans {
	return orphans{lost: map[string]time.Time{}, sweeps: map[string]int{}, absent: map[string]bool{}}
}

// forgetLost is for how long no list has to show a VM without a record until it is
// gone for certain, however late lists may be.
const forgetLost = time.Hour

// orphanLimit is how many VMs without a record, or records without a VM, are taken
// for an accident.
func orphanLimit(live int) int { return max(2, live/10) }

// lose remembers VMs that had no record when the term began.
func (o *orphans) lose(vms []provider.VM, now time.Time) {
	for _, vm := range vms {
		o.lost[vm.ProviderID] = now
	}
}

// countLost returns how many VMs without a record may have had one, and forgets
// those that no list has shown as such for long.
func (o *orphans) countLost(vms []provider.VM, now time.Time) (lost int) {
	for _, vm := range vms {
		known := false
		for _, name := range []string{vm.ProviderID, string(vm.ID)} {
			if _, ok := o.lost[name]; ok {
				o.lost[name], known = now, true
			}
		}
		if known {
			lost++
		}
	}
	maps.DeleteFunc(o.lost, func(_ string, last time.Time) bool { return now.Sub(last) > forgetLost })
	return lost
}

// judge weighs a census: is it an accident, or is the store to be suspected? It
// returns why nothing may be done (empty: all may), and what is to be reported.
func (o *orphans) judge(c census, now time.Time) (held string, problem *fleet.Problem) {
	limit, lost := orphanLimit(c.live), o.countLost(c.orphans, now)
	o.tooMany = len(c.orphans) > limit
	if !o.tooMany {
		return "", nil
	}
	outcome := "None of them was deleted; everything else goes on. "
	if lost > limit {
		outcome = "Nothing was deleted, and nothing is created or deleted until this is settled. "
	}
	text := fmt.Sprintf("%d VMs of this shard run without a record, more than the %d that may be an accident: %s. %s"+
		"Check that the server uses the right bucket, prefix, cluster and shard, and that no instance records were lost. "+
		"Then restore the records, or, if these VMs really are left over, delete them at the provider. The next sweep looks again.",
		len(c.orphans), limit, nameSome(c.orphans, nameOf), outcome)
	if lost > limit {
		held = text
	}
	return held, &fleet.Problem{Reason: ReasonOrphans, Message: text}
}

// nominate returns the VMs that are to go. atSize says whether a group runs
// complete without its orphan.
func (o *orphans) nominate(c census, held bool, atSize func(fleet.GroupKey) bool) (doomed []provider.VM) {
	sweeps := make(map[string]int, len(c.orphans)+len(c.leftovers))
	take := func(vms []provider.VM, ok func(provider.VM) bool) {
		for _, vm := range vms {
			sweeps[vm.ProviderID] = o.sweeps[vm.ProviderID] + 1
			if sweeps[vm.ProviderID] >= 2 && vm.State != provider.StateDeleting && !held && ok(vm) {
				doomed = append(doomed, vm)
			}
		}
	}
	take(c.leftovers, func(provider.VM) bool { return true })
	take(c.orphans, func(vm provider.VM) bool { return !o.tooMany && !c.nameless && atSize(groupOfTags(vm)) })
	o.sweeps = sweeps
	return doomed
}

// atSize reports whether a group has as many running instances as it wants, so
// that a VM beside them is not needed.
func (s *sweeper) atSize(key fleet.GroupKey) bool {
	g, defined := s.cfg.Groups.Group(key)
	switch {
	case !defined || g.Removed:
		return true
	case g.RecordMissing != "": // there may be more to it
		return false
	}
	running, recorded := 0, map[fleet.InstanceID]bool{}
	for _, r := range s.cfg.Ledger.Group(key) {
		recorded[r.ID] = true
		if r.Phase == fleet.Running && !r.OnDemand && !dead(s.observed.get(r.ID).vm) {
			running++
		}
	}
	return running >= g.Size-s.filled(key, func(id fleet.InstanceID) bool { return recorded[id] })
}

// removeOrphans has workers delete what a sweep doomed. One that is still being
// worked on from an earlier sweep is not taken up twice.
func (s *sweeper) removeOrphans(ctx context.Context, doomed []provider.VM) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, vm := range doomed {
		if s.removing[vm.ProviderID] {
			continue
		}
		s.removing[vm.ProviderID] = true
		s.workers.Go(func() {
			err := s.removeOrphan(ctx, vm)
			s.mu.Lock()
			delete(s.removing, vm.ProviderID)
			s.mu.Unlock()
			s.fail(ctx, err, groupOfTags(vm), vm.ID)
		})
	}
}

// removeOrphan deletes a VM that no record means, if it is still there and
// still without one.
func (s *sweeper) removeOrphan(ctx context.Context, vm provider.VM) error {
	free, err := s.cloud.deletes.take(ctx)
	if err != nil {
		return err
	}
	defer free()
	got := s.cloud.get(ctx, vm.Ref())
	if got.err != nil {
		return because(ReasonProvider, fmt.Errorf("ask for the stray VM %s: %w", vm.ProviderID, got.err))
	}
	if _, err := s.recallOne(ctx, vm); err != nil {
		return err
	}
	if !got.found || got.vm.State == provider.StateDeleting || wordOf(got.vm.State) == plan.VMGone || s.meant(vm) {
		return nil
	}
	if err := s.cloud.delete(ctx, vm.Ref()); err != nil {
		return because(ReasonProvider, fmt.Errorf("delete the stray VM %s: %w", vm.ProviderID, err))
	}
	s.log.Warn("stray VM deleted", slog.String("provider_id", vm.ProviderID),
		slog.String("instance", string(vm.ID)), slog.String("group", groupOfTags(vm).String()))
	return nil
}

// meant reports whether a record stands for exactly this VM, or may. The
// creates under way are read first: each is in the ledger before it is no
// longer one.
func (s *sweeper) meant(vm provider.VM) bool {
	if vm.ID == "" {
		return false
	}
	if s.claims().ids[vm.ID] || s.creates.underWay()[vm.ID] {
		return true
	}
	r, ok := s.cfg.Ledger.Get(vm.ID)
	return ok && r.Phase != fleet.Deleted && (r.Provider.ID == "" || r.Provider.ID == vm.ProviderID)
}

func groupOfTags(vm provider.VM) fleet.GroupKey {
	return fleet.GroupKey{Tenant: vm.Tags[provider.TagTenant], Name: vm.Tags[provider.TagGroup]}
}

// nameOf names a VM for a person.
func nameOf(vm provider.VM) string {
	if vm.ID == "" {
		return vm.ProviderID
	}
	return fmt.Sprintf("%s (instance %s)", vm.ProviderID, vm.ID)
}

// nameSome names things for a person, the first few by name.
func nameSome[T any](all []T, nameOf func(T) string) string {
	const few = 10
	var names []string
	for _, one := range all[:min(few, len(all))] {
		names = append(names, nameOf(one))
	}
	if rest := len(all) - few; rest > 0 {
		names = append(names, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(names, ", ")
}
