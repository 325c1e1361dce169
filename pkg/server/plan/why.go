package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// RuleOf returns the rule that an action's reason belongs to, such as rule:scale.
func RuleOf(reason string) string {
	switch Word(reason) {
	case ReasonScaleUp, ReasonScaleDown, ReasonLeaving, ReasonGroupRemoved:
		return "rule:scale"
	case ReasonReplaceAsked, ReasonDeleteAsked:
		return "rule:request"
	case ReasonUnhealthy, ReasonVMDown, ReasonVMGone, ReasonNotice, ReasonShutdown:
		return "rule:health"
	case ReasonExpired, ReasonForcedExpiry, ReasonOnDemandExpired:
		return "rule:expiry"
	case ReasonDrift:
		return "rule:rotation"
	case ReasonReplacement:
		return "rule:replacement"
	default:
		return "rule:creation"
	}
}

// Members counts a group's managed instances for an explanation.
type Members struct {
	Active                            int // pending or running
	Draining                          int
	Requested, Silent, Aged, Outdated int // of the running ones, each by its first cause
}

// Members counts the managed instances of the view. O(instances).
func (v *View) Members() (m Members) {
	age, paused := v.Settings.staleAge(), v.Group.RolloutPaused
	if paused {
		age = v.Settings.ForcedAge
	}
	for n := range v.Instances {
		i := &v.Instances[n]
		if i.OnDemand {
			continue
		}
		m.Active += one(i.Phase.Active())
		m.Draining += one(i.Phase == fleet.Draining)
		if i.Phase != fleet.Running {
			continue
		}
		c := ConditionOf(i, v.Settings, v.Takeover, v.Now)
		switch {
		case i.RemovalAskedAt != nil:
			m.Requested++
		case c.Reason == ReasonUnhealthy:
			m.Silent++
		case i.Hashes.Outdated(v.Group.Hashes) && !paused:
			m.Outdated++
		case age > 0 && !born(i.Instance).Add(age).After(v.Now):
			m.Aged++
		}
	}
	return m
}

// Why is the basis of an action: its rule's input, copied from the view, so that it can be told
// once the action is carried out. Immutable.
type Why struct {
	Action  Action
	Members Members

	group    string
	size     int
	infra    string   // of the group's definition
	files    bool     // the group requires files
	paused   bool     // the group's rollout is paused
	instance Instance // as the decision saw it; without an id for a create
	settings Settings
	takeover time.Time
	now      time.Time
}

// Why returns the basis of an action of the decision about the view. members are those of the view.
func (v *View) Why(a Action, members Members) Why {
	w := Why{
		Action: a, Members: members, group: v.Group.Key.Name, size: v.Group.Size, infra: v.Group.Hashes.Infra,
		files: v.Group.AwaitsFiles(), paused: v.Group.RolloutPaused,
		instance: Instance{Instance: &fleet.Instance{}}, settings: v.Settings, takeover: v.Takeover, now: v.Now,
	}
	if i := v.Find(a.ID); i != nil {
		w.instance = *i
	}
	return w
}

// Lost returns the basis of a create that replaces a lost instance of the view. Its reason is that
// of the loss.
func (v *View) Lost(i *Instance) Why {
	w := v.Why(Action{Kind: Create, Reason: leaveReason(i)}, Members{})
	w.instance = *i
	if c := ConditionOf(i, v.Settings, v.Takeover, v.Now); c.Lost {
		w.Action.Reason = c.Reason
	}
	return w
}

// String tells why in one sentence.
func (w Why) String() string {
	i := &w.instance
	switch {
	case w.Action.Kind == Create && i.ID != "":
		return fmt.Sprintf("it replaces %s: %s", i.ID, w.rule(w.Action.Reason))
	case w.Action.Kind == Create:
		return w.wanted()
	case w.Action.Kind == Drain:
		return fmt.Sprintf("%s; it drains until %s at the latest", w.rule(w.Action.Reason), stamp(w.Action.At))
	case i.Phase == fleet.Draining:
		return w.drained()
	case i.Phase == fleet.Deleting:
		return "its machine is gone"
	case w.Action.Kind == Tombstone:
		return w.rule(w.Action.Reason) + "; no machine was made for it"
	default:
		return w.rule(w.Action.Reason)
	}
}

// wanted explains a create that replaces no lost instance.
func (w Why) wanted() string {
	m := w.Members
	have := fmt.Sprintf("group %s has %d of %d instances", w.group, m.Active, w.size)
	if m.Draining > 0 {
		have += fmt.Sprintf(" (draining: %d)", m.Draining)
	}
	if w.Action.Reason != ReasonReplacement {
		return have
	}
	var why []string
	for _, c := range []struct {
		count int
		what  string
	}{
		{m.Requested, "replaced by request"}, {m.Silent, "silent"}, {m.Outdated, "made from another definition"}, {m.Aged, "too old"},
	} {
		if c.count > 0 {
			why = append(why, fmt.Sprintf("%s: %d", c.what, c.count))
		}
	}
	return have + "; this one replaces another, which leaves when it runs (" + strings.Join(why, ", ") + ")"
}

// rule explains why an instance leaves for a reason.
func (w Why) rule(reason string) string {
	reason, details, _ := strings.Cut(reason, ": ")
	text := w.fault(reason)
	if text == "" {
		text = w.policy(reason)
	}
	if text == "" {
		text = reason
	}
	if details != "" {
		text += ": " + details
	}
	return text
}

// fault explains the reasons that are faults of an instance; empty for others.
func (w Why) fault(reason string) string {
	i := &w.instance
	switch reason {
	case ReasonVMDown:
		return "its machine has stopped"
	case ReasonVMGone:
		return "its machine is gone"
	case ReasonNotice:
		return "the end of its machine was announced" + announced(i.Health.Notice)
	case ReasonShutdown:
		return fmt.Sprintf("its agent reported at %s that it was being stopped, and has not come back within %s",
			stamp(i.Health.ShuttingDownAt), w.settings.ShutdownGrace)
	case ReasonUnhealthy:
		return fmt.Sprintf("its agent is silent: %s, and %d reports are missing", lastReport(i, w.takeover), w.settings.MissedReports)
	case ReasonRegistrationTimeout:
		return fmt.Sprintf("its agent did not register within %s", w.settings.RegistrationTimeout)
	case ReasonCreateTimeout:
		return fmt.Sprintf("no machine was made within %s", w.settings.CreateTimeout)
	case ReasonStray:
		return "its create was never sent"
	default:
		return ""
	}
}

// policy explains the reasons that are decisions about an instance that works; empty for others.
func (w Why) policy(reason string) string {
	i := &w.instance
	age := w.now.Sub(born(i.Instance)).Truncate(time.Second)
	switch reason {
	case ReasonScaleDown:
		return fmt.Sprintf("group %s has %d instances and size %d; %s", w.group, w.Members.Active, w.size, w.chosen())
	case ReasonLeaving:
		return "its removal was requested with the group's size"
	case ReasonGroupRemoved:
		return fmt.Sprintf("group %s is deleted", w.group)
	case ReasonReplaceAsked, ReasonDeleteAsked:
		return "its removal was requested" + since(i.RemovalAskedAt)
	case ReasonExpired:
		return fmt.Sprintf("it is %s old: instances are replaced from an age of %s", age, w.settings.EligibleAge)
	case ReasonForcedExpiry:
		return fmt.Sprintf("it is %s old: instances are replaced in any case from an age of %s", age, w.settings.ForcedAge)
	case ReasonOnDemandExpired:
		return fmt.Sprintf("it is %s old: on-demand instances are deleted at an age of %s", age, w.settings.OnDemandAge)
	case ReasonDrift:
		return fmt.Sprintf("it was made from definition %s, and group %s has %s now", i.Hashes.Infra, w.group, w.infra)
	default:
		return ""
	}
}

// chosen tells why scaling down takes this instance and not another.
func (w Why) chosen() string {
	i := &w.instance
	switch c := ConditionOf(i, w.settings, w.takeover, w.now); {
	case i.RemovalAskedAt != nil:
		return "this one was to be replaced by request"
	case c.Reason == ReasonUnhealthy:
		return "this one is silent"
	case i.Phase == fleet.Pending:
		return "this one is not running yet"
	case w.files && i.Health.WithoutFiles:
		return "this one lacks its files"
	case w.paused:
		return "this one is the youngest"
	default:
		return "this one is the oldest"
	}
}

// drained tells why a draining instance is deleted now.
func (w Why) drained() string {
	i := &w.instance
	switch {
	case i.Drain != nil && i.Drain.AckedAt != nil:
		return "its drain was acknowledged" + since(i.Drain.AckedAt)
	case i.VM == VMDown:
		return "its machine stopped while it was draining"
	case i.VM == VMGone:
		return "its machine is gone, while it was draining"
	case i.Drain != nil && i.Health.Notice != nil && i.Health.Notice.At.Before(i.Drain.DeleteAt):
		return "its drain is over: the end of its machine was announced" + announced(i.Health.Notice)
	default:
		return "the time for its drain is over"
	}
}

func announced(n *fleet.Notice) string {
	if n == nil {
		return ""
	}
	text := ""
	if n.Source != "" {
		text = " by " + n.Source
	}
	if !n.At.IsZero() {
		text += " for " + stamp(n.At)
	}
	return text
}

func lastReport(i *Instance, takeover time.Time) string {
	if i.Health.LastReportAt.IsZero() {
		return "it has not reported since the takeover at " + stamp(takeover)
	}
	return "it reported last at " + stamp(i.Health.LastReportAt)
}

func since(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " at " + stamp(*t)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
