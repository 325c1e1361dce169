package reconcile

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// AgentConnected tells that an instance's agent holds a health stream.
func (l *Loop) AgentConnected(id fleet.InstanceID) {
	l.heard(id, func(b *observation, _ fleet.Instance) (news urgency, ask bool) {
		if b.doubtful() {
			news = urgent
		}
		b.health.Connected, b.health.ShuttingDownAt = true, time.Time{}
		if dead(b.vm) {
			return news, true // an agent speaks from a machine that is said to be dead
		}
		if b.health.Notice == nil {
			b.loss = nil
		}
		return news, false
	})
}

// AgentDisconnected tells that the instance's health stream broke at the given
// time. The provider is asked about its VM at once.
func (l *Loop) AgentDisconnected(id fleet.InstanceID, at time.Time) {
	l.heard(id, func(b *observation, r fleet.Instance) (urgency, bool) {
		b.health.Connected = false
		b.lose(signDisconnect, at, r)
		return urgent, !dead(b.vm)
	})
}

// AgentReport takes a health report.
func (l *Loop) AgentReport(id fleet.InstanceID, report fleet.Report) {
	l.heard(id, func(b *observation, r fleet.Instance) (news urgency, ask bool) {
		if b.health.LastReportAt.IsZero() {
			news = unhurried
		}
		b.health.LastReportAt = report.At
		if report.ReportInterval > 0 {
			b.health.ReportInterval = report.ReportInterval
		}
		switch {
		case report.ShuttingDown && b.health.ShuttingDownAt.IsZero():
			b.health.ShuttingDownAt = report.At
			b.lose(signShutdown, report.At, r)
			news, ask = urgent, true
		case !report.ShuttingDown && !b.health.ShuttingDownAt.IsZero():
			b.health.ShuttingDownAt = time.Time{}
			news = urgent
		}
		// An announced end stays announced: the machine goes, whatever its
		// agent says later. Only the first word on it counts, and the first to
		// name a time: an agent that says something else each time keeps
		// nothing busy.
		if n := report.Notice; n != nil && (b.health.Notice == nil || (b.health.Notice.At.IsZero() && !n.At.IsZero())) {
			notice := *n
			b.health.Notice = &notice
			b.lose(signNotice, report.At, r)
			news = urgent
		}
		return news, ask
	})
}

// Registered tells that the instance's record moved to running.
func (l *Loop) Registered(id fleet.InstanceID) {
	l.heard(id, func(*observation, fleet.Instance) (urgency, bool) { return unhurried, false })
}

// urgency is how much a piece of news matters.
type urgency int

const (
	nothing urgency = iota
	// unhurried news comes from an instance that does well (schedule.markSoon).
	unhurried
	urgent
)

// heard takes over news of an instance, which is applied to what is known of
// it, together with its record (zero if there is none). When that changes what
// is known, its group gets a pass; when it is in doubt, the provider is asked.
func (l *Loop) heard(id fleet.InstanceID, apply func(*observation, fleet.Instance) (news urgency, ask bool)) {
	r, known := l.cfg.Ledger.Get(id)
	var news urgency
	var ask bool
	l.observed.with(id, func(b *observation) { news, ask = apply(b, r) })
	if !known {
		return
	}
	if ask {
		l.poller.askNow(r)
	}
	switch news {
	case nothing:
		return
	case urgent:
		l.schedule.mark(r.GroupKey())
	case unhurried:
		l.schedule.markSoon(time.Now(), r.GroupKey())
	}
	l.cfg.Changed(r.GroupKey(), id)
}

// Health is what the loop knows of an instance's condition.
type Health struct {
	Connected    bool
	LastReportAt time.Time      // zero: no report in this term
	Unhealthy    string         // why the instance is not well; empty: it is, or nothing is known yet
	VM           provider.State // the provider's last word; empty: none in this term
	LastError    string         // why the last step failed, or the instance did, in words; empty: none did, that is known
	LastErrorAt  time.Time      // zero: there is none
}

// Health returns what is known of an instance now.
func (l *Loop) Health(id fleet.InstanceID) Health {
	record, ok := l.cfg.Ledger.Get(id)
	settings := l.cfg.Groups.Settings()
	b := l.observed.get(id)
	h := Health{Connected: b.health.Connected, LastReportAt: b.health.LastReportAt, VM: b.state}
	h.LastError, h.LastErrorAt = b.lastError(record)
	if ok {
		now, since := time.Now(), *l.takeover.Load()
		if since.IsZero() {
			since = now // no agent was listened to yet
		}
		i := b.join(record, now)
		h.Unhealthy = plan.ConditionOf(&i, settings, since, now).Reason
	}
	return h
}

// Addresses returns the addresses that the provider last showed for an
// instance's VM; none when it has shown none in this term.
func (l *Loop) Addresses(id fleet.InstanceID) []netip.Addr {
	return slices.Clone(l.observed.get(id).addresses)
}
