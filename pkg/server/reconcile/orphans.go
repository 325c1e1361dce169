package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// orphanage keeps an eye on the VMs of ours that no record means.
//
// A stray VM is deleted, but only after two sweeps saw it, a Get confirmed it,
// and its group runs at size without it: so a record that was removed under a
// living agent is replaced first. More strays than orphanLimit are not deleted:
// somebody is asked.
//
// A lost bucket, or a server that was pointed at the wrong one, looks just like
// that, and there to create what seems to be missing would be as wrong as to
// delete what seems to be too much. So when the VMs that had a record, or may
// have had one, exceed the limit (those without one at the takeover, and those
// whose record vanished since), the loop holds: no pass, no create, no delete,
// until a sweep finds that the records are back or the VMs are gone. Strays that
// turn up in a running term are no sign of a lost store, and hold up nothing but
// their own deletion.
type orphanage struct {
	held      string          // why nothing is done; empty: all is well
	lost      map[string]bool // instance and provider ids of VMs that may have had a record
	sightings map[string]int  // by provider id: sweeps in a row that saw it
	tooMany   bool            // strays are not deleted
	limit     int             // while the store is listed: how many records may vanish; 0: it is not
	removing  map[string]bool // by provider id: a deletion is under way
}

func newOrphanage() orphanage {
	return orphanage{lost: map[string]bool{}, sightings: map[string]int{}, removing: map[string]bool{}}
}

// orphanLimit is how many VMs without a record are taken for an accident.
func orphanLimit(live int) int { return max(2, live/10) }

// lose remembers VMs that had no record when the term began.
func (o *orphanage) lose(strays []provider.VM) {
	for _, vm := range strays {
		o.lost[vm.ProviderID] = true
	}
}

// judge weighs a census: is it an accident, or is the store to be suspected?
func (o *orphanage) judge(c census) *fleet.Problem {
	o.limit = 0
	limit, lost := orphanLimit(c.live), 0
	for _, vm := range c.strays {
		if o.lost[vm.ProviderID] || (vm.ID != "" && o.lost[string(vm.ID)]) {
			lost++
		}
	}
	o.tooMany, o.held = len(c.strays) > limit, ""
	if !o.tooMany {
		return nil
	}
	text := fmt.Sprintf("%d VMs of this shard run without a record, more than the %d that may be an accident: %s. ",
		len(c.strays), limit, nameAll(c.strays))
	if lost > limit {
		text += "Nothing was deleted, and nothing is created or deleted until this is settled. "
		o.held = text
	} else {
		text += "None of them was deleted; everything else goes on. "
	}
	text += "Check that the server uses the right bucket, prefix, cluster and shard, and that no instance records were lost. " +
		"Then restore the records, or, if these VMs really are left over, delete them at the provider. The next sweep looks again."
	if o.held != "" {
		o.held = text
	}
	return &fleet.Problem{Reason: ReasonOrphans, Message: text}
}

// nominate returns the VMs that are to go. atSize says whether a group runs
// complete without its stray.
func (o *orphanage) nominate(c census, atSize func(fleet.GroupKey) bool) []provider.VM {
	seen := make(map[string]int, len(c.strays)+len(c.leftovers))
	var doomed []provider.VM
	take := func(vms []provider.VM, ok func(provider.VM) bool) {
		for _, vm := range vms {
			seen[vm.ProviderID] = o.sightings[vm.ProviderID] + 1
			if seen[vm.ProviderID] >= 2 && vm.State != provider.StateDeleting && o.held == "" && ok(vm) {
				doomed = append(doomed, vm)
			}
		}
	}
	take(c.leftovers, func(provider.VM) bool { return true })
	take(c.strays, func(vm provider.VM) bool { return !o.tooMany && !c.nameless && atSize(groupOfTags(vm)) })
	o.sightings = seen
	return doomed
}

// suspended reports whether no pass may run now: the loop holds, or a listing of
// the store under way has taken away too many records. l.mu is held.
func (l *Loop) suspended() bool {
	o := &l.orphans
	return o.held != "" || (o.limit > 0 && l.cfg.Ledger.Vanished() > o.limit)
}

// Held says why the loop does nothing; empty while it acts.
func (l *Loop) Held() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.orphans.held
}

// atSize reports whether a group has as many running instances as it wants, so
// that a VM beside them is not needed. l.mu is held.
func (l *Loop) atSize(key fleet.GroupKey) bool {
	g, defined := l.cfg.Groups.Group(key)
	if !defined || g.Removed {
		return true
	}
	running := 0
	for _, r := range l.cfg.Ledger.Group(key) {
		if t := l.tracks[r.ID]; r.Phase == fleet.Running && !r.OnDemand && (t == nil || !dead(t.vm)) {
			running++
		}
	}
	return running >= g.Size-l.filled(key)
}

// removeOrphans has workers delete what a sweep doomed. One that is still being
// worked on from an earlier sweep is not taken up twice.
func (l *Loop) removeOrphans(ctx context.Context, doomed []provider.VM) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, vm := range doomed {
		if l.orphans.removing[vm.ProviderID] {
			continue
		}
		l.orphans.removing[vm.ProviderID] = true
		l.workers.Go(func() {
			err := l.removeOrphan(ctx, vm)
			l.mu.Lock()
			delete(l.orphans.removing, vm.ProviderID)
			l.mu.Unlock()
			l.fail(ctx, err, groupOfTags(vm), vm.ID)
		})
	}
}

// removeOrphan deletes a VM that no record means, if it is still there and still
// nobody's.
func (l *Loop) removeOrphan(ctx context.Context, vm provider.VM) error {
	free, err := l.deletes.take(ctx)
	if err != nil {
		return err
	}
	defer free()
	got := l.get(ctx, vm.Ref())
	if got.err != nil {
		return because(ReasonProvider, fmt.Errorf("ask for the stray VM %s: %w", vm.ProviderID, got.err))
	}
	if !got.found || got.vm.State == provider.StateDeleting || wordOf(got.vm.State) == plan.VMGone || l.meant(vm) {
		return nil
	}
	if err := l.requestDelete(ctx, vm.Ref()); err != nil {
		return because(ReasonProvider, fmt.Errorf("delete the stray VM %s: %w", vm.ProviderID, err))
	}
	l.log.Warn("stray VM deleted", slog.String("provider_id", vm.ProviderID),
		slog.String("instance", string(vm.ID)), slog.String("group", groupOfTags(vm).String()))
	return nil
}

// meant reports whether a record stands for exactly this VM, or may.
func (l *Loop) meant(vm provider.VM) bool {
	if vm.ID == "" {
		return false
	}
	if l.spokenFor().ids[vm.ID] {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.cfg.Ledger.Get(vm.ID)
	if l.launching[vm.ID] != nil {
		return true
	}
	return ok && r.Phase != fleet.Deleted && (r.Provider.ID == "" || r.Provider.ID == vm.ProviderID)
}

func groupOfTags(vm provider.VM) fleet.GroupKey {
	return fleet.GroupKey{Tenant: vm.Tags[provider.TagTenant], Name: vm.Tags[provider.TagGroup]}
}

// nameAll names VMs for a person, the first few by name.
func nameAll(vms []provider.VM) string {
	const few = 10
	var names []string
	for _, vm := range vms[:min(few, len(vms))] {
		name := vm.ProviderID
		if vm.ID != "" {
			name = fmt.Sprintf("%s (instance %s)", vm.ProviderID, vm.ID)
		}
		names = append(names, name)
	}
	if rest := len(vms) - few; rest > 0 {
		names = append(names, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(names, ", ")
}
