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
	l.news(id, func(t *track, r fleet.Instance) weight {
		heard := nothing
		if t.doubtful() {
			heard = urgent
		}
		t.health.Connected, t.health.ShuttingDownAt = true, time.Time{}
		if dead(t.vm) {
			l.askNow(t, r) // somebody speaks from a machine that is said to be dead
		} else if t.health.Notice == nil {
			t.loss = nil
		}
		return heard
	})
}

// AgentDisconnected tells that the instance's health stream broke at the given
// time. The provider is asked about its VM at once.
func (l *Loop) AgentDisconnected(id fleet.InstanceID, at time.Time) {
	l.news(id, func(t *track, r fleet.Instance) weight {
		t.health.Connected = false
		t.lose(signDisconnect, at, r)
		if !dead(t.vm) {
			l.askNow(t, r)
		}
		return urgent
	})
}

// AgentReport takes a health report.
func (l *Loop) AgentReport(id fleet.InstanceID, report fleet.Report) {
	l.news(id, func(t *track, r fleet.Instance) weight {
		heard := nothing
		if t.health.LastReportAt.IsZero() {
			heard = unhurried
		}
		t.health.LastReportAt = report.At
		if report.ReportInterval > 0 {
			t.health.ReportInterval = report.ReportInterval
		}
		switch {
		case report.ShuttingDown && t.health.ShuttingDownAt.IsZero():
			t.health.ShuttingDownAt = report.At
			t.lose(signShutdown, report.At, r)
			l.askNow(t, r)
			heard = urgent
		case !report.ShuttingDown && !t.health.ShuttingDownAt.IsZero():
			t.health.ShuttingDownAt = time.Time{}
			heard = urgent
		}
		// An announced end stays announced: the machine goes, whatever its agent
		// says later.
		// Only the first word on it counts, and the first to name a time: an agent
		// that says something else each time keeps nobody busy.
		if n := report.Notice; n != nil && (t.health.Notice == nil || (t.health.Notice.At.IsZero() && !n.At.IsZero())) {
			notice := *n
			t.health.Notice = &notice
			t.lose(signNotice, report.At, r)
			heard = urgent
		}
		return heard
	})
}

// Registered tells that the instance's record moved to running.
func (l *Loop) Registered(id fleet.InstanceID) {
	l.news(id, func(*track, fleet.Instance) weight { return unhurried })
}

// weight is how much a piece of news matters.
type weight int

const (
	nothing weight = iota
	// unhurried news comes from an instance that does well. A thousand of them may
	// come up together, and a pass looks at all of a group each time, so such news
	// is gathered for a moment: ten times what the last pass took, unhurriedMost at
	// most.
	unhurried
	urgent
)

const unhurriedMost = 100 * time.Millisecond

// news applies what was heard of an instance, together with its record (zero if
// there is none); when it changes what is known, its group gets a pass.
func (l *Loop) news(id fleet.InstanceID, apply func(*track, fleet.Instance) weight) {
	l.mu.Lock()
	r, known := l.cfg.Ledger.Get(id)
	heard := apply(l.track(id), r)
	switch {
	case !known:
		heard = nothing
	case heard == urgent:
		l.mark(r.GroupKey())
	case heard == unhurried:
		l.wakeAt(r.GroupKey(), time.Now().Add(min(10*l.passTook, unhurriedMost)))
		l.signal()
	}
	l.mu.Unlock()
	if heard != nothing {
		l.changed(r.GroupKey(), id)
	}
}

func (l *Loop) changed(key fleet.GroupKey, id fleet.InstanceID) {
	if l.cfg.Changed != nil {
		l.cfg.Changed(key, id)
	}
}

// Health is what the loop knows of an instance's condition.
type Health struct {
	Connected    bool
	LastReportAt time.Time      // zero: no report in this term
	Unhealthy    string         // why the instance is not well; empty: it is, or nothing is known yet
	VM           provider.State // the provider's last word; empty: none in this term
}

// Health returns what is known of an instance now.
func (l *Loop) Health(id fleet.InstanceID) Health {
	record, ok := l.cfg.Ledger.Get(id)
	settings := l.cfg.Groups.Settings()
	l.mu.Lock()
	defer l.mu.Unlock()
	var t track
	if known := l.tracks[id]; known != nil {
		t = *known
	}
	h := Health{Connected: t.health.Connected, LastReportAt: t.health.LastReportAt, VM: t.state}
	if ok {
		now, since := time.Now(), l.takeover
		if since.IsZero() {
			since = now // nobody was listened to yet
		}
		i := plan.Instance{Instance: record, VM: t.vm, Health: t.health}
		h.Unhealthy = plan.ConditionOf(&i, settings, since, now).Reason
	}
	return h
}

// Addresses returns the addresses that the provider last showed for an
// instance's VM; none when it has shown none in this term.
func (l *Loop) Addresses(id fleet.InstanceID) []netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tracks[id]; t != nil {
		return slices.Clone(t.addresses)
	}
	return nil
}
