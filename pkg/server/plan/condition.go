package plan

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// maxReportInterval bounds the report interval that an agent may claim.
const maxReportInterval = time.Hour

// Condition is what is wrong with one instance, independently of its group. It is zero if
// the instance is healthy, unknown yet, or leaving anyway.
type Condition struct {
	Reason string // a constant of this package; empty if healthy
	// Lost means that the instance has failed and is replaced at once. Otherwise it is only
	// silent, and is replaced when a replacement is ready.
	Lost bool
	// Worsens is when the condition gets worse without any event; zero: never.
	Worsens time.Time
}

// ConditionOf returns the condition of an instance at now, for a term that began to decide
// at takeover.
func ConditionOf(i *Instance, s Settings, takeover, now time.Time) Condition {
	if !i.Phase.Active() {
		return Condition{}
	}
	silentAt := silentAt(i, &s, takeover, now)
	shutAt := shutDownAt(i, &s)
	switch {
	case i.VM == VMDown:
		return ended(i, ReasonVMDown)
	case i.VM == VMGone && !unmade(i):
		return ended(i, ReasonVMGone)
	case i.Health.Notice != nil:
		return Condition{Reason: ReasonNotice, Lost: true}
	case reached(shutAt, now):
		return Condition{Reason: ReasonShutdown, Lost: true}
	case reached(silentAt, now):
		return Condition{Reason: ReasonUnhealthy, Worsens: shutAt}
	default:
		return Condition{Worsens: Sooner(silentAt, shutAt)}
	}
}

// ended returns the condition of an instance whose machine is found to have ended. If its agent had
// said that it shuts down, it did what it announced.
func ended(i *Instance, reason string) Condition {
	if !i.Health.ShuttingDownAt.IsZero() {
		reason = ReasonShutdown
	}
	return Condition{Reason: reason, Lost: true}
}

// unmade reports whether the instance's create is not made yet or its outcome is unknown.
// A missing machine is no failure then.
func unmade(i *Instance) bool {
	return i.Phase == fleet.Pending && i.Provider.ID == ""
}

// shutDownAt returns when the grace period after an agent's shutdown message ends; zero if
// there was none. An on-demand instance is not replaced, so it is left to its owner as long
// as its machine runs.
func shutDownAt(i *Instance, s *Settings) time.Time {
	at := i.Health.ShuttingDownAt
	if at.IsZero() || i.OnDemand {
		return time.Time{}
	}
	return at.Add(s.ShutdownGrace)
}

// silentAt returns when too many reports will be missing, counted from the last report, the
// takeover or KnownSince, whichever is latest; zero: never. Before the first report the
// registration counts too, unless it is in the future: a clock that was ahead puts off nothing.
// The agent's own interval applies if it is longer than the configured one, since the agent may
// have been started with an older configuration.
func silentAt(i *Instance, s *Settings, takeover, now time.Time) time.Time {
	if i.Phase != fleet.Running || s.ReportInterval <= 0 || s.MissedReports <= 0 {
		return time.Time{}
	}
	interval := max(s.ReportInterval, min(i.Health.ReportInterval, maxReportInterval))
	since := i.Health.LastReportAt
	if since.Before(takeover) || since.Before(i.KnownSince) {
		since = latest(takeover, i.KnownSince)
		if i.RegisteredAt != nil && !i.RegisteredAt.After(now) {
			since = latest(since, *i.RegisteredAt)
		}
	}
	return since.Add(interval * time.Duration(s.MissedReports))
}

// reached reports whether t is set and not after now.
func reached(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// Sooner returns the earlier of two times, ignoring zero ones.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
