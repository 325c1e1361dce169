package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// relistPage is how many records one request lists. A sweep spends at most one
// such request on average, so that at the usual interval of two minutes an idle
// shard stays at 30 listings an hour, however many records it has.
const relistPage = 1000

// census is what the provider has, matched with the records, both ways.
type census struct {
	present   []pair           // an active record, and the VM it names
	missing   []fleet.Instance // an active record whose VM is not there, or not alive
	strays    []provider.VM    // VMs of ours without a record
	leftovers []provider.VM    // VMs that their record does not mean: of a tombstone, or a second one
	spared    []provider.VM    // VMs that only a malformed object speaks of
	nameless  bool             // any VM may be the one that a malformed object speaks of
	live      int              // records that are no tombstones
}

type pair struct {
	record fleet.Instance
	vm     provider.VM
}

// compare matches records and VMs by instance id. Of two VMs with one id the one
// that the record names stays; a record that names none yet means the oldest. A
// second one is left over only if the first is there: else the record's VM is
// missing, and nothing is concluded about the other; nor about any VM beyond its
// record that a malformed object may speak of.
func compare(records []fleet.Instance, s spoken, vms []provider.VM) census {
	c := census{nameless: s.nameless}
	byID := make(map[fleet.InstanceID][]provider.VM, len(vms))
	for _, vm := range vms {
		if vm.State.Exists() {
			byID[vm.ID] = append(byID[vm.ID], vm)
		}
	}
	c.strays = append(c.strays, byID[""]...)
	delete(byID, "")
	for _, r := range records {
		c.match(r, byID[r.ID])
		delete(byID, r.ID)
	}
	for id, vms := range byID {
		if s.ids[id] {
			c.spared = append(c.spared, vms...)
		} else {
			c.strays = append(c.strays, vms...)
		}
	}
	c.leftovers = slices.DeleteFunc(c.leftovers, func(vm provider.VM) bool { return s.ids[vm.ID] })
	slices.SortFunc(c.strays, provider.Compare)
	return c
}

func (c *census) match(r fleet.Instance, vms []provider.VM) {
	if r.Phase == fleet.Deleted {
		c.leftovers = append(c.leftovers, vms...)
		return
	}
	c.live++
	if r.Provider.ID == "" {
		slices.SortStableFunc(vms, func(a, b provider.VM) int { return a.CreatedAt.Compare(b.CreatedAt) })
	}
	own := slices.IndexFunc(vms, func(vm provider.VM) bool {
		return r.Provider.ID == "" || vm.ProviderID == r.Provider.ID
	})
	if own < 0 {
		c.missing = append(c.missing, r)
		return
	}
	c.leftovers = append(c.leftovers, slices.Delete(slices.Clone(vms), own, own+1)...)
	if vms[own].State.Alive() {
		c.present = append(c.present, pair{record: r, vm: vms[own]})
	} else {
		c.missing = append(c.missing, r)
	}
}

// errNoList is the failure of a sweep for want of the provider's list.
var errNoList = errors.New("list the VMs")

// sweepAll sweeps until ctx ends. One without a list is repeated soon: until one
// comes nobody sees which VMs are gone.
func (l *Loop) sweepAll(ctx context.Context) {
	most, failures := l.cfg.FirstSweep, 0
	for n := 0; l.awaitSweep(ctx, time.Now(), most); {
		if err := l.sweep(ctx, n); err != nil {
			l.fail(ctx, fmt.Errorf("sweep: %w", err), fleet.GroupKey{}, "")
			most = longest
			if errors.Is(err, errNoList) {
				failures++
				most = stepBackoff().Delay(failures)
			}
			continue
		}
		n++
		most, failures = longest, 0
	}
}

// longest is no bound at all.
const longest = time.Duration(math.MaxInt64)

// awaitSweep waits for the sweep's interval, as it is by then, since the last one
// ended, and for most at most. It reports false when ctx ended first.
func (l *Loop) awaitSweep(ctx context.Context, last time.Time, most time.Duration) bool {
	for {
		due, stop := after(last.Add(min(most, l.tuning.Load().SweepInterval)))
		select {
		case <-due:
			return true
		case <-ctx.Done():
			stop()
			return false
		case <-l.retuned:
			stop()
		}
	}
}

// sweep compares the provider with the ledger: the provider's list first, the
// store's second, so that an instance that is created in between can't look like
// a VM without a record.
func (l *Loop) sweep(ctx context.Context, n int) error {
	asked := time.Now()
	vms, err := l.list(ctx)
	if err != nil {
		return because(ReasonProvider, fmt.Errorf("%w: %w", errNoList, err))
	}
	if pages := 1 + len(l.cfg.Ledger.Instances())/relistPage; n%pages == 0 {
		if err := l.relist(ctx); err != nil {
			return err
		}
	}
	c := compare(l.cfg.Ledger.Instances(), l.spokenFor(), vms)
	l.mu.Lock()
	suspects := l.absorb(ctx, c, asked)
	l.spare(c.spared)
	before := l.suspended()
	problem := l.orphans.judge(c)
	doomed := l.orphans.nominate(c, l.atSize)
	after := l.suspended()
	l.lift(before, after)
	l.forgetTracks()
	l.mu.Unlock()
	if before && !after {
		l.log.Info("the records account for the VMs again, going on")
		l.changed(fleet.GroupKey{}, "")
	}
	l.tell(problem)
	l.tellMalformed()
	l.removeOrphans(ctx, doomed)
	l.confirm(ctx, suspects)
	return nil
}

// lift lets passes run again, or drops what they decided before they may not.
// Agents without a record could not make themselves heard meanwhile, so their
// silence counts from here. l.mu is held.
func (l *Loop) lift(before, after bool) {
	switch {
	case after:
		l.queue = newQueue()
	case before:
		l.takeover = time.Now()
		l.markAll()
	}
}

// relist takes over what other hands did to the records. Passes go on meanwhile,
// unless so many records vanish that the store must be suspected.
func (l *Loop) relist(ctx context.Context) error {
	l.mu.Lock()
	l.orphans.limit = orphanLimit(living(l.cfg.Ledger.Instances()))
	l.mu.Unlock()
	began := time.Now()
	appeared, vanished, err := l.cfg.Ledger.Relist(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range vanished {
		l.orphans.lost[string(id)] = true
	}
	if err != nil {
		l.orphans.limit = 0
		l.markAll()
		return because(ReasonStorage, fmt.Errorf("list the records: %w", err))
	}
	for id, x := range l.launching {
		if _, ok := l.cfg.Ledger.Get(id); !ok && !x.active && x.triedAt.Before(began) {
			x.unlisted = true
			l.mark(x.group.Key)
		}
	}
	if len(appeared)+len(vanished) > 0 {
		l.log.Warn("records changed by another hand", slog.Int("appeared", len(appeared)), slog.Int("vanished", len(vanished)))
		l.markAll()
	}
	return nil
}

// absorb takes over what a census saw and returns the VMs to be asked about one
// by one. l.mu is held.
func (l *Loop) absorb(ctx context.Context, c census, asked time.Time) []provider.Ref {
	now := time.Now()
	for _, p := range c.present {
		l.observe(p.record, sight{vm: p.vm, found: true, asked: asked}, now)
		// The VM of a pending record may be half made: its create is repeated, which
		// completes it and answers with it.
		if p.record.Provider.ID == "" && p.record.Phase != fleet.Pending {
			l.adoptFound(ctx, p, now)
		}
	}
	var suspects []provider.Ref
	for _, r := range c.missing {
		// A create under way, or to be repeated, answers for itself; the end of one
		// that is being deleted is polled for.
		unmade := r.Phase == fleet.Pending && r.Provider.ID == ""
		if !unmade && r.Phase != fleet.Deleting && l.launching[r.ID] == nil {
			suspects = append(suspects, refOf(r))
		}
	}
	return l.turn(suspects)
}

// maxSuspects is how many VMs one sweep asks about one by one. The next goes on
// where it ended.
const maxSuspects = 200

func (l *Loop) turn(suspects []provider.Ref) []provider.Ref {
	if len(suspects) <= maxSuspects {
		return suspects
	}
	slices.SortFunc(suspects, func(a, b provider.Ref) int { return cmp.Compare(a.ID, b.ID) })
	from, _ := slices.BinarySearchFunc(suspects, l.nextSuspect, func(r provider.Ref, id fleet.InstanceID) int { return cmp.Compare(r.ID, id) })
	round := slices.Concat(suspects[from:], suspects[:from])
	l.nextSuspect = round[maxSuspects].ID
	return round[:maxSuspects]
}

// adoptFound records the VM of an instance that registered although its create's
// answer was never written down. l.mu is held.
func (l *Loop) adoptFound(ctx context.Context, p pair, now time.Time) {
	t := l.track(p.record.ID)
	if t.isBusy(now) {
		return
	}
	t.busy = true
	key := p.record.GroupKey()
	l.workers.Go(func() {
		err := l.adopt(ctx, p.record.ID, p.vm)
		l.mu.Lock()
		t.done(err, time.Now())
		l.mark(key)
		l.mu.Unlock()
		l.changed(key, p.record.ID)
		l.fail(ctx, err, key, p.record.ID)
	})
}

// confirm asks about what a list only hinted at.
func (l *Loop) confirm(ctx context.Context, suspects []provider.Ref) {
	for _, got := range l.getAll(ctx, suspects) {
		if got.err != nil {
			l.fail(ctx, because(ReasonProvider, fmt.Errorf("ask for instance %s: %w", got.id, got.err)), fleet.GroupKey{}, got.id)
			continue
		}
		l.mu.Lock()
		r, ok := l.cfg.Ledger.Get(got.id)
		changed := ok && l.observe(r, got.sight, time.Now())
		l.mu.Unlock()
		if changed {
			l.changed(r.GroupKey(), r.ID)
		}
	}
}

// forgetTracks drops what is known of instances that are no more. l.mu is held.
func (l *Loop) forgetTracks() {
	for id, t := range l.tracks {
		if _, ok := l.cfg.Ledger.Get(id); !ok && !t.busy && !t.health.Connected && l.launching[id] == nil {
			delete(l.tracks, id)
		}
	}
}

// living counts the records that are no tombstones.
func living(records []fleet.Instance) int {
	n := 0
	for _, r := range records {
		if r.Phase != fleet.Deleted {
			n++
		}
	}
	return n
}
