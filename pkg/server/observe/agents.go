package observe

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// Connected records that an instance's agent opened a health stream.
func (s *State) Connected(id fleet.InstanceID) News {
	return s.heard(id, func(i *instance, _ fleet.Instance) (news Urgency, poll bool) {
		if i.doubtful() {
			news = Urgent
		}
		i.health.Connected, i.health.ShuttingDownAt = true, time.Time{}
		if i.vm.Dead() {
			return news, true // contradicts the provider
		}
		if i.health.Notice == nil {
			i.loss = nil
		}
		return news, false
	})
}

// Disconnected records that an instance's health stream broke at the given time. Its VM is
// polled at once.
func (s *State) Disconnected(id fleet.InstanceID, at time.Time) News {
	return s.heard(id, func(i *instance, r fleet.Instance) (Urgency, bool) {
		i.health.Connected = false
		i.lose(signDisconnect, at, r)
		return Urgent, !i.vm.Dead()
	})
}

// Reported records a health report. A termination notice is final. Only the first one counts,
// and the first one with a time, so that an agent that keeps changing its notice causes no work.
func (s *State) Reported(id fleet.InstanceID, report fleet.Report) News {
	return s.heard(id, func(i *instance, r fleet.Instance) (news Urgency, poll bool) {
		if i.health.LastReportAt.IsZero() || report.WithoutFiles != i.health.WithoutFiles {
			news = Unhurried
		}
		i.health.WithoutFiles = report.WithoutFiles
		i.health.LastReportAt = report.At
		if report.ReportInterval > 0 {
			i.health.ReportInterval = report.ReportInterval
		}
		switch {
		case report.ShuttingDown && i.health.ShuttingDownAt.IsZero():
			i.health.ShuttingDownAt = report.At
			i.lose(signShutdown, report.At, r)
			news, poll = Urgent, true
		case !report.ShuttingDown && !i.health.ShuttingDownAt.IsZero():
			i.health.ShuttingDownAt = time.Time{}
			news = Urgent
		}
		if n := report.Notice; n != nil && (i.health.Notice == nil || (i.health.Notice.At.IsZero() && !n.At.IsZero())) {
			notice := *n
			i.health.Notice = &notice
			i.lose(signNotice, report.At, r)
			news = Urgent
		}
		return news, poll
	})
}

// Refused records why the agent of an instance could not register, and reports whether that is new.
func (s *State) Refused(id fleet.InstanceID, why string, at time.Time) (news bool) {
	s.with(id, func(i *instance) {
		if news = i.refused != why; news {
			i.refused, i.refusedAt = why, at
		}
	})
	return news
}

// heard applies what an instance's agent says; apply also gets its record, zero if there is none.
func (s *State) heard(id fleet.InstanceID, apply func(*instance, fleet.Instance) (news Urgency, poll bool)) (n News) {
	r, known := s.records.Get(id)
	s.with(id, func(i *instance) { n.Pass, n.Poll = apply(i, r) })
	if !known {
		return News{}
	}
	n.Record, n.Changed = r, n.Pass != Nothing
	return n
}

// Health is the observed condition of an instance.
type Health struct {
	Connected    bool
	LastReportAt time.Time      // zero: no report in this term
	WithoutFiles bool           // the agent has no complete set of files
	Unhealthy    string         // why the instance is unhealthy; empty if it is healthy or unknown
	VM           provider.State // as last reported by the provider; empty: not in this term
	// Dead: the provider says that the VM will not work again, or does not find it while its agent has
	// no stream.
	Dead        bool
	LastError   string    // why the last step, or the instance, failed; empty if none is known to have failed
	LastErrorAt time.Time // zero if LastError is empty
}

// Health returns the condition of an instance now. takeover is when the term began to decide.
func (s *State) Health(id fleet.InstanceID, settings plan.Settings, takeover, now time.Time) Health {
	r, ok := s.records.Get(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.instances[id]
	if known == nil {
		known = &instance{}
	}
	h := Health{
		Connected: known.health.Connected, LastReportAt: known.health.LastReportAt, WithoutFiles: known.health.WithoutFiles, VM: known.state,
	}
	h.Dead = known.vm.Dead() && (!known.absent() || !known.health.Connected)
	h.LastError, h.LastErrorAt = known.lastError(r)
	if ok {
		i := known.join(&r, now)
		h.Unhealthy = plan.ConditionOf(&i, settings, takeover, now).Reason
	}
	return h
}

// lastError returns why the last step for an instance failed, and when; or, if none did, the
// failure in its record, which outlives this term, or why its agent could not register.
func (i *instance) lastError(r fleet.Instance) (string, time.Time) {
	switch {
	case i.steps.last != "":
		return i.steps.last, i.steps.lastAt
	case r.Failure != "" && r.DeletedAt != nil:
		return r.Failure, *r.DeletedAt
	case r.RegisteredAt == nil:
		return i.refused, i.refusedAt
	default:
		return "", time.Time{}
	}
}
