package reconcile

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/paced"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/schedule"
)

// AgentConnected records that an instance's agent opened a health stream.
func (l *Loop) AgentConnected(id fleet.InstanceID) { l.heed(l.observed.Connected(id)) }

// AgentDisconnected records that the instance's health stream broke at the given time. Its VM
// is polled at once.
func (l *Loop) AgentDisconnected(id fleet.InstanceID, at time.Time) {
	l.heed(l.observed.Disconnected(id, at))
}

// AgentReport records a health report.
func (l *Loop) AgentReport(id fleet.InstanceID, report fleet.Report) {
	l.heed(l.observed.Reported(id, report))
}

// Registered records that the instance's record moved to running.
func (l *Loop) Registered(id fleet.InstanceID) {
	r, _ := l.cfg.Ledger.Get(id)
	l.heed(observe.News{Record: r, Pass: observe.Unhurried, Changed: true})
}

// RegistrationRefused records why the agent of an instance could not register, and reports whether
// that is new.
func (l *Loop) RegistrationRefused(id fleet.InstanceID, why string) bool {
	return l.observed.Refused(id, why, time.Now())
}

// heed does what news of an agent calls for.
func (l *Loop) heed(n observe.News) {
	if n.Record.ID == "" {
		return
	}
	if n.Poll {
		l.poller.pollNow(n.Record)
	}
	if n.Changed {
		mark(l.schedule, time.Now(), n)
		l.reports.tell(n)
	}
}

// mark requests the passes that news calls for. It wakes the deciding goroutine in any case, since
// the absence check may have to be repeated.
func mark(due *schedule.Schedule, now time.Time, news ...observe.News) {
	var urgent, unhurried []fleet.GroupKey
	for _, n := range news {
		switch n.Pass {
		case observe.Urgent:
			urgent = append(urgent, n.Record.GroupKey())
		case observe.Unhurried:
			unhurried = append(unhurried, n.Record.GroupKey())
		case observe.Nothing:
		}
	}
	due.Mark(urgent...)
	due.MarkSoon(now, unhurried...)
}

// answerAbout returns the provider's answer about a record's VM.
func answerAbout(r fleet.Instance, got paced.Answer) observe.Answer {
	return observe.Answer{Record: r, VM: got.VM, Found: got.Found, Asked: got.Asked, Err: got.Err}
}

// Health returns the current condition of an instance.
func (l *Loop) Health(id fleet.InstanceID) observe.Health {
	now, since := time.Now(), *l.takeover.Load()
	if since.IsZero() {
		since = now // before the takeover
	}
	return l.observed.Health(id, l.cfg.Groups.Settings(), since, now)
}
