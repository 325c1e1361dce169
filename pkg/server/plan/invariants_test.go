package plan_test

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// count is a second, naive reading of a view, to hold decisions against.
type count struct {
	size       int
	live       int // managed, pending or running, not doomed
	ready      int
	unhealthy  int
	maybeGoing int // of live: busy and running, so perhaps leaving
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
	for _, i := range v.Instances {
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
		} else if i.Health.Connected && i.Health.ShuttingDownAt.IsZero() {
			c.ready++
		}
	}
	return c
}

// broken holds the actions against what must be true of every decision, and
// returns the first thing that is not.
func broken(v plan.View, actions []plan.Action) string {
	c := countView(v)
	creates, removed, replaced, scaled := 0, 0, 0, 0
	for n, a := range actions {
		switch a.Kind {
		case plan.Create:
			creates++
			continue
		case plan.Wake:
			if n != len(actions)-1 || !a.At.After(v.Now) {
				return "a wake that is not last, or not ahead"
			}
			continue
		case plan.Settle, plan.Forget:
			continue
		default: // it names an instance
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
		case a.Kind == plan.Drain && a.Reason == plan.ReasonUnhealthy && replacing(v):
			return "a replacement while the last one is still leaving"
		case !justified(v, i, a):
			return string(a.Kind) + " of a " + string(i.Phase) + " instance without a reason: " + a.Reason
		}
		if a.Kind != plan.Resume && counted(v, i) {
			removed++
			switch a.Reason {
			case plan.ReasonScaleDown:
				scaled++
			case plan.ReasonReplaceAsked, plan.ReasonUnhealthy, plan.ReasonDrift, plan.ReasonExpired, plan.ReasonForcedExpiry:
				if i.Phase != fleet.Running {
					break // nothing is lost with it
				}
				replaced++
				if others := c.ready - readyOf(v, i); others < c.size-(c.unhealthy-unhealthyOf(v, i)) {
					return "a replacement before the others are ready"
				}
			}
		}
	}
	if scaled > 0 && c.live-removed-c.maybeGoing < c.size {
		return "scaled below the size"
	}
	return brokenSum(v, c, creates, removed, replaced)
}

// brokenSum is the part of broken that is about the group as a whole.
func brokenSum(v plan.View, c count, creates, removed, replaced int) string {
	held := v.CreateNotBefore.After(v.Now)
	switch {
	case creates > 0 && (held || v.Group.Disabled != ""):
		return "a create that was to be held back"
	case creates > 0 && c.live+creates > c.size+1:
		return "more than size + 1"
	case !held && v.Group.Disabled == "" && c.live+creates < c.size:
		return "something missing, and not created in the same step"
	case replaced > 1:
		return "two replaced at a time"
	case replaced > 0 && c.live-removed-c.maybeGoing < c.size:
		return "replaced without a replacement"
	default:
		return ""
	}
}

// replacing reports whether one that was replaced is still leaving.
func replacing(v plan.View) bool {
	return slices.ContainsFunc(v.Instances, func(i plan.Instance) bool {
		if i.OnDemand || i.Phase != fleet.Draining || i.Drain == nil {
			return false
		}
		switch i.Drain.Reason {
		case plan.ReasonReplaceAsked, plan.ReasonUnhealthy, plan.ReasonDrift, plan.ReasonExpired, plan.ReasonForcedExpiry:
			return true
		default:
			return false
		}
	})
}

func readyOf(v plan.View, i plan.Instance) int {
	if i.Phase == fleet.Running && !silent(v, i) && i.Health.Connected && i.Health.ShuttingDownAt.IsZero() {
		return 1
	}
	return 0
}

func unhealthyOf(v plan.View, i plan.Instance) int {
	if i.Phase == fleet.Running && silent(v, i) {
		return 1
	}
	return 0
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

// leaves reports whether a pending or running instance may go for this reason.
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
		return !i.OnDemand && i.Hashes.Infra != v.Group.Hashes.Infra
	case plan.ReasonExpired:
		return v.Settings.EligibleAge > 0 && v.Now.Sub(i.ID.Time()) >= v.Settings.EligibleAge
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
