package measure

import (
	"math"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/metrics/prometheus"
)

// MaxGroups is the number of groups with series of their own.
const MaxGroups = 500

// Others is the group, and the tenant, of the series that sum all other groups. No group can
// have this name.
const Others = "_others"

// show sets all values that are read from the state.
func (m *Server) show(s *prometheus.Sample, now State) {
	p := m.process
	s.SetBool(p.leader, now.Term != nil)
	s.SetBool(p.ready, now.Ready)
	s.Set(p.epoch, float64(now.Epoch))
	if !now.CAExpires.IsZero() {
		s.Set(p.expires, float64(now.CAExpires.Unix()), "ca")
	}
	if !now.ServerExpires.IsZero() {
		s.Set(p.expires, float64(now.ServerExpires.Unix()), "server")
	}
	for kind, n := range now.Issued {
		s.Set(p.issued, float64(n), kind)
	}
	for _, t := range now.Audit {
		s.Set(p.audit, float64(t.Events), string(t.Kind), string(t.Outcome))
	}
	s.Set(p.auditOmitted, float64(now.AuditOmitted))
	s.Set(p.connections, float64(now.Handshaking), "started")
	s.Set(p.connections, float64(now.Waiting), "waiting")
	s.Set(p.agentStreams, float64(now.AgentStreams))
	s.Set(p.operatorStreams, float64(now.Watches))
	if now.Term != nil {
		m.showTerm(s, now.Term)
	}
}

func (m *Server) showTerm(s *prometheus.Sample, t *Term) {
	s.Set(m.term.due, float64(t.Due))
	s.Set(m.term.queued, float64(t.Queued))
	s.Set(m.term.creating, float64(t.Creating))
	s.Set(m.term.changes, t.Changes)
	for calls, seconds := range t.Throttled {
		s.Set(m.term.throttled, seconds, calls)
	}
	for reason, n := range t.Problems {
		s.Set(m.term.problems, float64(n), reason)
	}
	s.Set(m.term.groups, float64(len(t.Groups)))
	for _, g := range bounded(t.Groups) {
		m.showGroup(s, g)
	}
}

func (m *Server) showGroup(s *prometheus.Sample, g Group) {
	of, x := []string{g.Key.Tenant, g.Key.Name}, m.groups
	s.Set(x.wanted, float64(g.Wanted), of...)
	s.Set(x.actual, float64(g.Actual), of...)
	s.Set(x.outdated, float64(g.Outdated), of...)
	s.Set(x.silent, float64(g.Silent), of...)
	s.SetBool(x.ready, g.Ready, of...)
	s.SetBool(x.failing, g.CreatesFailing, of...)
	s.Set(x.failures, float64(g.CreateFailures), of...)
	s.Set(x.backoff, math.Max(0, g.NextCreate.Seconds()), of...)
	for _, phase := range fleet.Phases() {
		if phase != fleet.Deleted {
			s.Set(x.phases, float64(g.Phases[phase]), append(slices.Clip(of), string(phase))...)
		}
	}
}

// bounded returns the first groups by tenant and name, and the sum of all others, which is ready
// if all of them are.
func bounded(all []Group) []Group {
	if len(all) <= MaxGroups {
		return all
	}
	all = slices.SortedFunc(slices.Values(all), func(a, b Group) int { return a.Key.Compare(b.Key) })
	rest := Group{Key: fleet.GroupKey{Tenant: Others, Name: Others}, Ready: true, Phases: map[fleet.Phase]int{}}
	for _, g := range all[MaxGroups:] {
		rest.Wanted += g.Wanted
		rest.Actual += g.Actual
		rest.Outdated += g.Outdated
		rest.Silent += g.Silent
		rest.Ready = rest.Ready && g.Ready
		rest.CreatesFailing = rest.CreatesFailing || g.CreatesFailing
		rest.CreateFailures += g.CreateFailures
		rest.NextCreate = max(rest.NextCreate, g.NextCreate)
		for phase, n := range g.Phases {
			rest.Phases[phase] += n
		}
	}
	return append(all[:MaxGroups:MaxGroups], rest)
}
