package census_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/census"
)

// TestMissed: the conclusion from a Get that does not find a VM, by the age of its create, whether
// it registered, and whether the provider's reads may lag.
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
		want     census.Finding
	}{
		"lagging, registered, first answer": {eventual, running, true, never, at(500), census.Finding{MissedAt: at(500), AskAt: at(502)}},
		"second, too soon":                  {eventual, running, true, at(500), at(501.9), census.Finding{MissedAt: at(500), AskAt: at(502)}},
		"second":                            {eventual, running, true, at(500), at(502), census.Finding{MissedAt: at(500), Gone: true}},
		"second, much later":                {eventual, running, false, at(500), at(620), census.Finding{MissedAt: at(500), Gone: true}},
		"young and registered, first":       {eventual, running, false, never, at(20), census.Finding{MissedAt: at(20), AskAt: at(22)}},
		"young and registered, second":      {eventual, running, false, at(20), at(22), census.Finding{MissedAt: at(20), Gone: true}},
		"young, not registered":             {eventual, pending, false, never, at(20), census.Finding{AskAt: at(60)}},
		"young, not registered, shown":      {eventual, pending, true, never, at(59.9), census.Finding{AskAt: at(60)}},
		"young, not registered, leaving":    {eventual, deleting, true, never, at(20), census.Finding{AskAt: at(60)}},
		"not registered, first":             {eventual, pending, true, never, at(60), census.Finding{MissedAt: at(60), AskAt: at(62)}},
		"not registered, second":            {eventual, pending, true, at(60), at(62), census.Finding{MissedAt: at(60), Gone: true}},
		"leaving, second":                   {eventual, deleting, true, at(60), at(62), census.Finding{MissedAt: at(60), Gone: true}},

		"consistent, registered":           {consistent, running, false, never, at(500), census.Finding{MissedAt: at(500), Gone: true}},
		"consistent, young and registered": {consistent, running, false, never, at(11), census.Finding{MissedAt: at(11), Gone: true}},
		"consistent, its create answered":  {consistent, pending, false, never, at(1), census.Finding{MissedAt: at(1), Gone: true}},
		"consistent, shown":                {consistent, unmade, true, never, at(1), census.Finding{MissedAt: at(1), Gone: true}},
		"its create may land yet":          {consistent, unmade, false, never, at(1), census.Finding{AskAt: at(60)}},
		"its create is over":               {consistent, unmade, false, never, at(60), census.Finding{MissedAt: at(60), Gone: true}},
	} {
		got := census.Missed(c.record, census.Search{Consistent: c.reads, Shown: c.shown, Attempted: at(0), MissedAt: c.missedAt}, c.asked)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestWeigh: by the number of absent VMs and their agents' streams.
func TestWeigh(t *testing.T) {
	takeover := time.Unix(1_700_000_000, 0)
	over := takeover.Add(census.ComeBack)
	for name, c := range map[string]struct {
		roll  census.Roll
		after time.Duration // the takeover
		want  census.Verdict
	}{
		"none":                                   {census.Roll{Records: 5}, time.Hour, census.Believed},
		"two of a small shard":                   {census.Roll{Records: 3, Absent: 2, Connected: 2}, time.Second, census.Believed},
		"a tenth":                                {census.Roll{Records: 40, Absent: 4, Connected: 4}, time.Second, census.Believed},
		"more, with one voice":                   {census.Roll{Records: 40, Absent: 5, Connected: 1}, time.Hour, census.Refuted},
		"more, with one voice, after a takeover": {census.Roll{Records: 3, Absent: 3, Connected: 1}, time.Second, census.Refuted},
		"more, and silence":                      {census.Roll{Records: 40, Absent: 40}, time.Hour, census.Believed},
		"more, and silence, after a takeover":    {census.Roll{Records: 9, Absent: 3, Found: 1}, census.ComeBack - 1, census.Awaited},
		"all, and silence, after a takeover":     {census.Roll{Records: 9, Absent: 3}, census.ComeBack - 1, census.Blind},
		"more, and silence, long enough":         {census.Roll{Records: 3, Absent: 3}, census.ComeBack, census.Believed},
	} {
		got, until := census.Weigh(c.roll, takeover, takeover.Add(c.after))
		if got != c.want || (got == census.Awaited || got == census.Blind) != until.Equal(over) {
			t.Errorf("%s: %v until %v, want %v", name, got, until, c.want)
		}
	}
}
