package reconcile

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestMissed: what a Get that does not find a VM is worth, by how old its create is,
// by whether it registered, and by whether the provider's reads may lag.
func TestMissed(t *testing.T) {
	at := func(s float64) time.Time {
		return time.Unix(1_700_000_000, 0).Add(time.Duration(s * float64(time.Second)))
	}
	unmade := fleet.Instance{Phase: fleet.Pending}
	pending := fleet.Instance{Phase: fleet.Pending, Provider: fleet.ProviderRef{ID: "vm-1"}}
	running := fleet.Instance{Phase: fleet.Running, Provider: pending.Provider, RegisteredAt: new(at(10))}
	deleting := fleet.Instance{Phase: fleet.Deleting, Provider: pending.Provider}
	never := time.Time{}

	const eventual, consistent = false, true
	for name, c := range map[string]struct {
		reads    bool
		record   fleet.Instance
		shown    bool
		missedAt time.Time
		asked    time.Time // the create was at 0
		want     finding
	}{
		"lagging, registered, first answer": {eventual, running, true, never, at(500), finding{missedAt: at(500), askAt: at(502)}},
		"second, too soon":                  {eventual, running, true, at(500), at(501.9), finding{missedAt: at(500), askAt: at(502)}},
		"second":                            {eventual, running, true, at(500), at(502), finding{missedAt: at(500), gone: true}},
		"second, much later":                {eventual, running, false, at(500), at(620), finding{missedAt: at(500), gone: true}},
		"young and registered, first":       {eventual, running, false, never, at(20), finding{missedAt: at(20), askAt: at(22)}},
		"young and registered, second":      {eventual, running, false, at(20), at(22), finding{missedAt: at(20), gone: true}},
		"young, not registered":             {eventual, pending, false, never, at(20), finding{askAt: at(60)}},
		"young, not registered, shown":      {eventual, pending, true, never, at(59.9), finding{askAt: at(60)}},
		"young, not registered, leaving":    {eventual, deleting, true, never, at(20), finding{askAt: at(60)}},
		"not registered, first":             {eventual, pending, true, never, at(60), finding{missedAt: at(60), askAt: at(62)}},
		"not registered, second":            {eventual, pending, true, at(60), at(62), finding{missedAt: at(60), gone: true}},
		"leaving, second":                   {eventual, deleting, true, at(60), at(62), finding{missedAt: at(60), gone: true}},

		"consistent, registered":           {consistent, running, false, never, at(500), finding{missedAt: at(500), gone: true}},
		"consistent, young and registered": {consistent, running, false, never, at(11), finding{missedAt: at(11), gone: true}},
		"consistent, its create answered":  {consistent, pending, false, never, at(1), finding{missedAt: at(1), gone: true}},
		"consistent, shown":                {consistent, unmade, true, never, at(1), finding{missedAt: at(1), gone: true}},
		"its create may land yet":          {consistent, unmade, false, never, at(1), finding{askAt: at(60)}},
		"its create is over":               {consistent, unmade, false, never, at(60), finding{missedAt: at(60), gone: true}},
	} {
		got := missed(c.record, search{consistent: c.reads, shown: c.shown, attempted: at(0), missedAt: c.missedAt}, c.asked)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestACreateOfTheLastTermMayBeSlowToShow: the record says when its create was asked
// for first. While the provider throttled, the leader before this one asked on until its
// end, so a VM may have come to be just then.
func TestACreateOfTheLastTermMayBeSlowToShow(t *testing.T) {
	takeover := time.Unix(1_700_000_000, 0)
	at := func(s int) time.Time { return takeover.Add(time.Duration(s) * time.Second) }
	r := fleet.Instance{ID: "i", Phase: fleet.Pending, Provider: fleet.ProviderRef{CreateAttemptedAt: new(at(-70))}}
	o := newObservations(newSchedule(), false, takeover)
	for _, c := range []struct {
		asked int
		gone  bool
	}{{1, false}, {4, false}, {59, false}, {60, false}, {62, true}} {
		o.see(r, answer{id: r.ID, asked: at(c.asked)}, at(c.asked))
		if gone := o.get(r.ID).vm == plan.VMGone; gone != c.gone {
			t.Errorf("not found %d s after the takeover: gone %v", c.asked, gone)
		}
	}
}

// TestWeigh: how many may be absent at once before their agents are heard, and what
// those say.
func TestWeigh(t *testing.T) {
	takeover := time.Unix(1_700_000_000, 0)
	over := takeover.Add(comeBack)
	for name, c := range map[string]struct {
		roll  roll
		after time.Duration // the takeover
		want  verdict
	}{
		"none":                                   {roll{records: 5}, time.Hour, believed},
		"two of a small shard":                   {roll{records: 3, absent: 2, connected: 2}, time.Second, believed},
		"a tenth":                                {roll{records: 40, absent: 4, connected: 4}, time.Second, believed},
		"more, with one voice":                   {roll{records: 40, absent: 5, connected: 1}, time.Hour, refuted},
		"more, with one voice, after a takeover": {roll{records: 3, absent: 3, connected: 1}, time.Second, refuted},
		"more, and silence":                      {roll{records: 40, absent: 40}, time.Hour, believed},
		"more, and silence, after a takeover":    {roll{records: 9, absent: 3, found: 1}, comeBack - 1, awaited},
		"all, and silence, after a takeover":     {roll{records: 9, absent: 3}, comeBack - 1, blind},
		"more, and silence, long enough":         {roll{records: 3, absent: 3}, comeBack, believed},
	} {
		got, until := weigh(c.roll, takeover, takeover.Add(c.after))
		if got != c.want || (got == awaited || got == blind) != until.Equal(over) {
			t.Errorf("%s: %v until %v, want %v", name, got, until, c.want)
		}
	}
}

// TestTooLate: whom a decision that it waited in vain ends.
func TestTooLate(t *testing.T) {
	for name, c := range map[string]struct {
		phase  fleet.Phase
		was    string // the reason in its record
		reason string
		want   bool
	}{
		"still pending":          {fleet.Pending, "", plan.ReasonCreateTimeout, false},
		"registered":             {fleet.Running, "", plan.ReasonCreateTimeout, true},
		"registered in time":     {fleet.Running, "", plan.ReasonRegistrationTimeout, true},
		"deleting for it":        {fleet.Deleting, plan.ReasonCreateTimeout, plan.ReasonCreateTimeout, false},
		"deleting for another":   {fleet.Deleting, plan.ReasonDeleteAsked, plan.ReasonCreateTimeout, true},
		"running, another cause": {fleet.Running, "", plan.ReasonVMGone, false},
	} {
		if got := tooLate(fleet.Instance{Phase: c.phase, Reason: c.was}, c.reason); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestAListIsTakenOverAsOne: when all are found again no decision sees a part of them
// still absent, which would look like a few whose absence is believed.
func TestAListIsTakenOverAsOne(t *testing.T) {
	const all = 1000
	began := time.Now()
	o := newObservations(newSchedule(), true, began)
	var c census
	var records []fleet.Instance
	var lost []answer
	for n := range all {
		r := fleet.Instance{
			ID: fleet.InstanceID(fmt.Sprintf("i%04d", n)), Phase: fleet.Running, RegisteredAt: &began,
			Provider: fleet.ProviderRef{ID: fmt.Sprintf("vm-%d", n)},
		}
		records, lost = append(records, r), append(lost, answer{id: r.ID, asked: began})
		c.present = append(c.present, pair{record: r, vm: provider.VM{ProviderID: r.Provider.ID, ID: r.ID, State: provider.StateRunning}})
	}
	o.seeAll(records, lost, began)
	if absent, _ := o.missing(); len(absent) != all {
		t.Fatalf("%d absent, want %d", len(absent), all)
	}

	var done atomic.Bool
	seen := make(chan map[int]bool, 1)
	watched := make(chan struct{})
	go func() {
		counts := map[int]bool{}
		for first := true; !done.Load(); first = false {
			absent, _ := o.missing()
			counts[len(absent)] = true
			if first {
				close(watched)
			}
		}
		seen <- counts
	}()
	<-watched
	(&sweeper{term: &term{observed: o}, creates: noCreates{}}).absorb(t.Context(), c, began.Add(time.Second))
	done.Store(true)
	for n := range <-seen {
		if n != 0 && n != all {
			t.Errorf("%d of %d were absent for a moment", n, all)
		}
	}
	if absent, _ := o.missing(); len(absent) != 0 {
		t.Errorf("%d absent, want 0", len(absent))
	}
}

// noCreates are under way.
type noCreates struct{}

func (noCreates) underWay() map[fleet.InstanceID]bool { return nil }
func (noCreates) relisted(time.Time)                  {}
