package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// maxReportInterval bounds what an agent's word on its own pace is worth.
const maxReportInterval = time.Hour

// Condition is what is wrong with one instance by itself, whatever its group is
// up to. The zero Condition is that of an instance that is well, or of which
// nothing is known yet, or which is on its way out anyway.
type Condition struct {
	Reason string // a constant of this package; empty: it is well
	// Lost means that the instance can't be counted on any more: it is replaced
	// at once. Otherwise it only is silent, and is replaced when a replacement
	// is ready.
	Lost bool
	// Worsens is when time alone makes it worse; zero: it does not.
	Worsens time.Time
}

// ConditionOf weighs an instance at now, for a term that decides since takeover.
func ConditionOf(i *Instance, s Settings, takeover, now time.Time) Condition {
	if !i.Phase.Active() {
		return Condition{}
	}
	silentAt := silentAt(i, &s, takeover)
	shutAt := shutDownAt(i, &s)
	switch {
	case i.VM == VMDown:
		return Condition{Reason: ReasonVMDown, Lost: true}
	case i.VM == VMGone && !unmade(i):
		return Condition{Reason: ReasonVMGone, Lost: true}
	case i.Health.Notice != nil:
		return Condition{Reason: ReasonNotice, Lost: true}
	case reached(shutAt, now):
		return Condition{Reason: ReasonShutdown, Lost: true}
	case reached(silentAt, now):
		return Condition{Reason: ReasonUnhealthy, Worsens: shutAt}
	default:
		return Condition{Worsens: sooner(silentAt, shutAt)}
	}
}

// unmade reports whether the instance's create is still to be made, or to be
// made certain: then there being no machine is no death.
func unmade(i *Instance) bool {
	return i.Phase == fleet.Pending && i.Provider.ID == ""
}

// shutDownAt is when the grace of an agent that said goodbye is over, zero if
// it did not. Nobody stands in for an on-demand instance, so its machine is
// left to its owner as long as it runs.
func shutDownAt(i *Instance, s *Settings) time.Time {
	at := i.Health.ShuttingDownAt
	if at.IsZero() || i.OnDemand {
		return time.Time{}
	}
	return at.Add(s.ShutdownGrace)
}

// silentAt is when too many reports are missing, counted from the last one, from the
// takeover, or from when the record came to be known, whichever came last; zero:
// never. Before the first report the registration counts too. An agent that reports
// more rarely than is configured now, since it was started with another
// configuration, is given its own pace.
func silentAt(i *Instance, s *Settings, takeover time.Time) time.Time {
	if i.Phase != fleet.Running || s.ReportInterval <= 0 || s.MissedReports <= 0 {
		return time.Time{}
	}
	interval := max(s.ReportInterval, min(i.Health.ReportInterval, maxReportInterval))
	since := i.Health.LastReportAt
	if since.Before(takeover) || since.Before(i.KnownSince) {
		since = latest(takeover, i.KnownSince)
		if i.RegisteredAt != nil {
			since = latest(since, *i.RegisteredAt)
		}
	}
	return since.Add(interval * time.Duration(s.MissedReports))
}

// reached reports whether a moment, unless it is none, has come.
func reached(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// sooner returns the earlier of two moments, of which either may be none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
