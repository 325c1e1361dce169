package pacing_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
)

// record is what the store has of a machine shortly before the given time.
func (m machine) record(now time.Time) fleet.Instance {
	r := fleet.Instance{
		ID: m.id, Tenant: "t", Group: "g", Phase: fleet.Pending, CreatedAt: m.began, Provider: fleet.ProviderRef{ID: "vm"},
	}
	if !m.registered.IsZero() && m.registered.Before(now) {
		r.Phase, r.RegisteredAt = fleet.Running, &m.registered
	}
	if m.ends.IsZero() || !m.ends.Before(now) {
		return r
	}
	r.Phase, r.DeletedAt, r.Reason = fleet.Deleted, &m.ends, plan.ReasonVMDown
	if m.done {
		r.Reason = plan.ReasonShutdown
	}
	return r
}

// TestTheNextLeaderJudgesAsTheLastOne: whatever became of a group's machines, a leader that only has
// the records limits its creates as the one did that saw it all.
func TestTheNextLeaderJudgesAsTheLastOne(t *testing.T) {
	limited := 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // the same each time
		upTo := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most) + 1)) }
		bad, jobs, lives := r.Float64(), r.Float64()/2, upTo(settle)
		s := newSimulated(1+r.IntN(40), time.Unix(1e9, 0), func(began time.Time) (m machine) {
			m.registered = began.Add(1 + upTo(20*time.Second))
			if r.Float64() < bad {
				m.ends, m.done = m.registered.Add(1+upTo(lives)), r.Float64() < jobs
			}
			return m
		})
		for until := s.now.Add(upTo(20 * time.Minute)); s.now.Before(until); {
			s.step()
		}
		var records []fleet.Instance
		for _, m := range s.all {
			r := m.record(s.now)
			other, onDemand := r, r // which tell nothing of the group's definition
			other.ID, other.Hashes.Infra = r.ID+"-other", "other"
			onDemand.ID, onDemand.OnDemand = r.ID+"-demand", true
			records = append(records, r, other, onDemand)
		}
		next := newSimulated(s.group.Size, s.now, nil).pacer
		settings := plan.Settings{Settle: settle}
		next.WarmUp(records, func(fleet.GroupKey) fleet.Group { return s.group }, settings, s.now)
		want, _ := s.pacer.At(s.group, s.lives, settings, s.now)
		got, _ := next.At(s.group, s.lives, settings, s.now)
		if !got.Equal(want) {
			t.Fatalf("seed %d: of a group of %d, the next leader limits creates to %+v, the one before to %+v", seed, s.group.Size, got, want)
		}
		is, fails := s.pacer.Condition(s.group.Key, s.now)
		if c, ok := next.Condition(s.group.Key, s.now); ok != fails || c.Failures != is.Failures || !c.Since.Equal(is.Since) {
			t.Fatalf("seed %d: the next leader has %+v, the one before %+v", seed, c, is)
		}
		if fails {
			limited++
		}
	}
	if limited < 100 {
		t.Errorf("only %d were failing", limited)
	}
}

// TestRefusalsAtATakeover: the next leader weighs refusals against the creates that were accepted, and
// has the provider's words.
func TestRefusalsAtATakeover(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, tt := range []struct {
		name     string
		accepted int
		fails    bool
	}{
		{"most were accepted", 3, false}, {"half were", 2, true}, {"none was", 0, true},
	} {
		s := newSimulated(20, now, nil)
		var records []fleet.Instance
		for n := range tt.accepted + 2 {
			r := machine{id: fleet.InstanceID(fmt.Sprint(n)), began: now.Add(time.Duration(n-10) * time.Minute)}.record(now)
			if n >= tt.accepted {
				at := r.CreatedAt.Add(time.Second)
				r.Phase, r.Provider.ID, r.DeletedAt, r.Reason, r.Failure = fleet.Deleted, "", &at, plan.ReasonCreateFailed, "no such flavor"
			}
			records = append(records, r)
		}
		s.pacer.WarmUp(records, func(fleet.GroupKey) fleet.Group { return s.group }, plan.Settings{Settle: settle}, now)
		c, fails := s.pacer.Condition(s.group.Key, now)
		if fails != tt.fails || fails && (c.Failures != 2 || c.Message != "no such flavor" || c.Reason != problems.ReasonProvider) {
			t.Errorf("%s: said to fail: %v %+v", tt.name, fails, c)
		}
		if pace := s.pacer.Pace(s.group); pace.Settling {
			t.Errorf("%s: the refusals count as early ends: %+v", tt.name, pace)
		}
	}
}
