package plan_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// count is an independent, naive evaluation of a view, to check decisions against.
type count struct {
	size        int
	live        int // managed, pending or running, not doomed
	ready       int
	unhealthy   int
	maybeGoing  int // of live: busy and running, so possibly leaving
	proven      int // of ready: settled
	surge       int // allowed beyond the size
	urgent      int // urgent replacements
	surging     int // draining, since a replacement came
	immediate   int
	inProbation int
}

// urgentIn counts the urgent replacements.
func urgentIn(v plan.View, c count) int {
	asked, forced := false, false
	for _, i := range v.Instances {
		if !counted(v, i) || i.Phase != fleet.Running {
			continue
		}
		asked = asked || i.RemovalAskedAt != nil
		forced = forced || v.Settings.ForcedAge > 0 && v.Now.Sub(i.ID.Time()) >= v.Settings.ForcedAge
	}
	switch {
	case c.size == 0:
		return 0
	case asked || forced != (c.unhealthy > 0):
		return 1
	case forced:
		return 2
	default:
		return 0
	}
}

// inProbation is an independent evaluation of when an instance is on probation.
func inProbation(v plan.View, i plan.Instance) bool {
	proof := v.Settings.Settle
	if v.Pace.Proof > 0 {
		proof = min(proof, v.Pace.Proof)
	}
	lasted := i.RegisteredAt != nil && v.Now.Sub(*i.RegisteredAt) >= proof
	switch {
	case i.OnDemand || i.Hashes.Outdated(v.Group.Hashes) || !i.Phase.Active():
		return false
	case !v.Pace.Settling:
		return i.Phase == fleet.Pending && i.Provider.ID == "" && i.Busy
	case i.Phase == fleet.Running:
		return !lasted
	default:
		return i.Provider.ID != "" || i.Busy || i.VM == plan.VMAlive
	}
}

func doomed(v plan.View, i plan.Instance) bool {
	down := i.VM == plan.VMDown || i.VM == plan.VMGone && (i.Phase != fleet.Pending || i.Provider.ID != "")
	shut := !i.Health.ShuttingDownAt.IsZero() && v.Now.Sub(i.Health.ShuttingDownAt) >= v.Settings.ShutdownGrace
	return down || shut || i.Health.Notice != nil || isLeaving(v, i.ID)
}

func isLeaving(v plan.View, id fleet.InstanceID) bool {
	for _, l := range v.Group.Leaving {
		if l == id {
			return true
		}
	}
	return false
}

func silent(v plan.View, i plan.Instance) bool {
	patience := v.Settings.ReportInterval * time.Duration(v.Settings.MissedReports)
	return v.Now.Sub(i.Health.LastReportAt) >= patience && v.Now.Sub(v.Takeover) >= patience &&
		(i.RegisteredAt == nil || v.Now.Sub(*i.RegisteredAt) >= patience)
}

func counted(v plan.View, i plan.Instance) bool {
	return i.Phase.Active() && !i.OnDemand && !doomed(v, i)
}

func countView(v plan.View) count {
	c := count{size: max(0, v.Group.Size)}
	if v.Group.Removed {
		c.size = 0
	}
	c.surge = v.Group.MaxSurge.Of(c.size)
	for _, i := range v.Instances {
		c.immediate += one(i.Immediate && i.Phase != fleet.Pending) // a pending one has its create already
		c.inProbation += one(inProbation(v, i))
		c.surging += one(!i.OnDemand && i.Phase == fleet.Draining && i.Drain != nil && calmReason(i.Drain.Reason))
		if !counted(v, i) {
			continue
		}
		c.live++
		if i.Phase != fleet.Running {
			continue
		}
		if i.Busy {
			c.maybeGoing++
		}
		if silent(v, i) {
			c.unhealthy++
		} else if readyOf(v, i) == 1 {
			c.ready++
			c.proven += one(!i.Busy) * provenOf(v, i)
		}
	}
	c.urgent = urgentIn(v, c)
	return c
}

// calmReason reports whether a reason applies to working instances.
func calmReason(reason string) bool {
	return reason == plan.ReasonDrift || reason == plan.ReasonExpired || reason == plan.ReasonForcedExpiry
}

// broken returns the first invariant that a decision violates; empty: none.
func broken(v plan.View, d plan.Decision) string {
	c, actions := countView(v), d.Actions
	var s sums
	for n, a := range actions {
		switch a.Kind {
		case plan.Create:
			s.creates++
			s.immediate += one(a.Immediate)
			continue
		case plan.Wake:
			if n != len(actions)-1 || !a.At.After(v.Now) {
				return "a wake that is not last, or not ahead"
			}
			continue
		case plan.ClearLeaving, plan.ForgetAbort, plan.Forget:
			continue
		default: // actions on an instance
		}
		at := slices.IndexFunc(v.Instances, func(i plan.Instance) bool { return i.ID == a.ID })
		if at < 0 {
			return "an action on an unknown instance"
		}
		i := v.Instances[at]
		switch {
		case i.Busy:
			return "an action on a busy instance"
		case slices.ContainsFunc(actions[:n], func(b plan.Action) bool { return b.ID == a.ID }):
			return "two actions on one instance"
		case a.Kind == plan.Drain && a.Reason == plan.ReasonUnhealthy && replacing(v) >= c.surge:
			return "a replacement while the last one is still leaving"
		case !justified(v, i, a):
			return string(a.Kind) + " of a " + string(i.Phase) + " instance without a reason: " + a.Reason
		}
		s.add(v, i, a)
	}
	return cmp.Or(s.brokenLeaving(c), s.brokenReplaced(v), s.brokenCreates(v, c), s.brokenSurge(v, c, d))
}

func one(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

func provenOf(v plan.View, i plan.Instance) int {
	return one(readyOf(v, i) == 1 && i.RegisteredAt != nil && v.Now.Sub(*i.RegisteredAt) >= v.Settings.Settle)
}

// replacing counts the replaced instances that are still leaving.
func replacing(v plan.View) (n int) {
	for _, i := range v.Instances {
		if i.OnDemand || i.Phase != fleet.Draining || i.Drain == nil {
			continue
		}
		n += one(calmReason(i.Drain.Reason) || i.Drain.Reason == plan.ReasonReplaceAsked || i.Drain.Reason == plan.ReasonUnhealthy)
	}
	return n
}

func lacksFiles(v plan.View, i plan.Instance) bool {
	return i.Health.WithoutFiles && len(v.Group.Files) > 0 && !v.Group.FilesOptional
}

// bareOf reports whether an instance runs and reports, and lacks its files.
func bareOf(v plan.View, i plan.Instance) bool {
	return counted(v, i) && i.Phase == fleet.Running && !silent(v, i) && lacksFiles(v, i)
}

func readyOf(v plan.View, i plan.Instance) int {
	return one(!lacksFiles(v, i) && i.Phase == fleet.Running && !silent(v, i) && i.Health.Connected && i.Health.ShuttingDownAt.IsZero())
}

// justified reports whether an action on an instance follows from its state.
func justified(v plan.View, i plan.Instance, a plan.Action) bool {
	gone := i.VM == plan.VMGone
	dead := gone || i.VM == plan.VMDown
	switch a.Kind {
	case plan.Resume:
		return i.Phase == fleet.Pending && i.Provider.ID == "" && !v.Now.Before(i.RetryAt)
	case plan.Prune:
		return i.Phase == fleet.Deleted && v.Now.Sub(*i.DeletedAt) >= v.Settings.DeletedRetention
	case plan.Tombstone:
		never := leaves(v, i, a.Reason) && i.Provider.CreateAttemptedAt == nil
		return i.Phase == fleet.Deleting && gone || i.Phase == fleet.Pending && i.Provider.ID == "" && (i.Stray || never)
	case plan.Drain:
		return i.Phase == fleet.Running && !dead && a.At.After(v.Now) && a.At.Sub(v.Now) <= v.Group.DrainTimeout && leaves(v, i, a.Reason)
	case plan.Delete:
		switch i.Phase {
		case fleet.Deleting:
			return !v.Now.Before(i.RetryAt)
		case fleet.Draining:
			n := i.Health.Notice
			return dead || i.Drain.AckedAt != nil || !v.Now.Before(i.Drain.DeleteAt) || n != nil && !n.At.IsZero() && !v.Now.Before(n.At)
		case fleet.Running:
			n := i.Health.Notice
			over := n != nil && !n.At.IsZero() && !v.Now.Before(n.At)
			return (dead || v.Group.DrainTimeout == 0 || over) && leaves(v, i, a.Reason)
		default:
			return i.Phase == fleet.Pending && leaves(v, i, a.Reason)
		}
	default:
		return false
	}
}

// leaves reports whether a pending or running instance may be removed for this reason.
func leaves(v plan.View, i plan.Instance, reason string) bool {
	if reason == plan.ReasonDeleteAsked {
		return i.OnDemand && i.RemovalAskedAt != nil
	}
	if reason == plan.ReasonCreateTimeout {
		return i.OnDemand && i.Provider.ID == "" && v.Now.Sub(i.CreatedAt) >= v.Settings.CreateTimeout
	}
	if v.Group.Disabled != "" {
		return false
	}
	c := countView(v)
	switch reason {
	case plan.ReasonScaleDown:
		return c.live > c.size
	case plan.ReasonReplaceAsked:
		return !i.OnDemand && i.RemovalAskedAt != nil
	case plan.ReasonGroupRemoved:
		return v.Group.Removed
	case plan.ReasonUnhealthy:
		return i.Phase == fleet.Running && silent(v, i)
	case plan.ReasonDrift:
		return !i.OnDemand && i.Hashes.Infra != v.Group.Hashes.Infra && !v.Group.RolloutPaused
	case plan.ReasonExpired:
		return v.Settings.EligibleAge > 0 && !v.Group.RolloutPaused && v.Now.Sub(i.ID.Time()) >= v.Settings.EligibleAge
	case plan.ReasonForcedExpiry:
		return v.Settings.ForcedAge > 0 && v.Now.Sub(i.ID.Time()) >= v.Settings.ForcedAge
	case plan.ReasonOnDemandExpired:
		return i.OnDemand && v.Settings.OnDemandAge > 0 && v.Now.Sub(i.ID.Time()) >= v.Settings.OnDemandAge
	case plan.ReasonRegistrationTimeout:
		return i.Phase == fleet.Pending && v.Now.Sub(i.CreatedAt) >= v.Settings.RegistrationTimeout &&
			v.Now.Sub(v.Takeover) >= v.Settings.RegistrationTimeout && v.Now.Sub(i.AskedAt) >= v.Settings.RegistrationTimeout &&
			(i.Provider.ID != "" || i.Provider.CreateAttemptedAt != nil)
	case plan.ReasonStray:
		return i.Stray && i.Phase == fleet.Pending
	default:
		return doomed(v, i)
	}
}
