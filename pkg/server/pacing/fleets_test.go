package pacing_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/pacing"
	"github.com/nstance/nstance/pkg/server/plan"
)

const settle = 2 * time.Minute

// machine is one of a simulated group.
type machine struct {
	id         fleet.InstanceID
	began      time.Time
	registered time.Time // zero: never
	ends       time.Time // when its end is noticed; zero: never
	done       bool      // it ends as its agent had said
}

func (m machine) age(now time.Time) time.Duration {
	if m.registered.IsZero() || m.registered.After(now) {
		return 0
	}
	return now.Sub(m.registered)
}

// simulated is a group whose machines are made as soon as the pace allows it.
type simulated struct {
	pacer   *pacing.Pacer
	group   fleet.Group
	now     time.Time
	alive   []machine
	all     []machine // also those that ended
	next    func(began time.Time) machine
	made    int
	onProbe int // of these, made through the window
}

func newSimulated(size int, now time.Time, next func(began time.Time) machine) *simulated {
	key := fleet.GroupKey{Tenant: "t", Name: "g"}
	wait := func(n int) time.Duration { return min(time.Second<<min(n, 12), 5*time.Minute) }
	return &simulated{
		pacer: pacing.New(wait, func(pacing.News) {}),
		group: fleet.Group{Key: key, Size: size}, now: now, next: next,
	}
}

func (s *simulated) lives() (all []plan.Life) {
	for _, m := range s.alive {
		if !m.registered.IsZero() && !m.registered.After(s.now) {
			all = append(all, plan.Life{ID: m.id, Age: m.age(s.now)})
		}
	}
	return all
}

// step buries what ended, makes what the pace allows, and goes on to the next moment at which
// something happens.
func (s *simulated) step() {
	settings := plan.Settings{Settle: settle}
	var failed []pacing.Failure
	var done []fleet.InstanceID
	s.alive = slices.DeleteFunc(s.alive, func(m machine) bool {
		gone := !m.ends.IsZero() && !m.ends.After(s.now)
		switch {
		case !gone || m.age(s.now) >= settle:
		case m.done:
			done = append(done, m.id)
		default:
			failed = append(failed, pacing.Failure{ID: m.id, Began: m.began, At: s.now, Young: true, Age: m.age(s.now)})
		}
		return gone
	})
	if len(done) > 0 {
		s.pacer.Done(s.group, done, s.now)
	}
	if len(failed) > 0 {
		s.pacer.Died(s.group, failed, settings, s.lives)
	}
	pace, _ := s.pacer.At(s.group, s.lives, settings, s.now)
	s.create(pace, settings)
	_, next := s.pacer.At(s.group, s.lives, settings, s.now)
	if pace.NotBefore.After(s.now) {
		next = plan.Sooner(next, pace.NotBefore)
	}
	for _, m := range s.alive {
		next = plan.Sooner(next, m.ends)
		if m.registered.After(s.now) {
			next = plan.Sooner(next, m.registered)
		}
	}
	s.now = s.now.Add(time.Hour)
	if !next.IsZero() {
		s.now = next
	}
}

func (s *simulated) create(pace plan.Pace, settings plan.Settings) {
	if pace.NotBefore.After(s.now) {
		return
	}
	probed := 0
	for _, m := range s.alive {
		if m.registered.IsZero() || m.age(s.now) < pace.ProvenAfter(settings) {
			probed++
		}
	}
	for len(s.alive) < s.group.Size && (pace.Probation == 0 || probed < pace.Probation) {
		m := s.next(s.now)
		s.made++
		m.id, m.began = fleet.InstanceID(fmt.Sprint(s.made)), s.now
		s.alive, s.all = append(s.alive, m), append(s.all, m)
		s.pacer.Accepted(s.group, m.id, s.now)
		probed++
		if pace.Probation > 0 {
			s.onProbe++
		}
	}
}

// TestABadImageIsFoundSoon: whatever the times at which its machines boot, register and end, a
// definition whose machines all end early costs one and a half times the group, and probes.
func TestABadImageIsFoundSoon(t *testing.T) {
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same each time
		upTo := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most) + 1)) }
		size := 1 + r.IntN(40)
		boot, late, lives, notice := upTo(5*time.Minute), upTo(time.Minute), upTo(settle-time.Second), upTo(5*time.Second)
		never := r.IntN(3) == 0
		s := newSimulated(size, time.Unix(1e9, 0), func(began time.Time) (m machine) {
			up := began.Add(upTo(boot))
			if never && r.IntN(2) == 0 {
				m.ends = began.Add(boot + time.Minute)
				return m
			}
			m.registered = up.Add(upTo(late))
			m.ends = m.registered.Add(min(upTo(lives)+upTo(notice), settle-time.Millisecond))
			return m
		})
		for began := s.now; s.now.Sub(began) < time.Hour; {
			s.step()
		}
		if most := size + max(3, size/2); s.made-s.onProbe > most {
			t.Fatalf("seed %d: of a group of %d, %d were made without the window, want at most %d", seed, size, s.made-s.onProbe, most)
		}
		if s.onProbe == 0 {
			t.Fatalf("seed %d: nothing was probed", seed)
		}
	}
}

// TestHalfOfAFleetIsMadeGoodAtOnce: machines of any age, up to half of the group, are replaced at
// once if they end in one moment.
func TestHalfOfAFleetIsMadeGoodAtOnce(t *testing.T) {
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // the same each time
		size := 1 + r.IntN(200)
		s := newSimulated(size, time.Unix(1e9, 0), func(began time.Time) machine { return machine{registered: began} })
		for n := range size {
			s.alive = append(s.alive, machine{
				id: fleet.InstanceID(fmt.Sprint("old", n)), registered: s.now.Add(-time.Duration(r.Int64N(int64(2 * settle)))),
			})
		}
		began, before := s.now, 0
		if size > 6 {
			before = r.IntN(max(3, size/5) + 1)
		}
		for n := range before { // which may be lost one by one
			s.pacer.Died(s.group, []pacing.Failure{{ID: fleet.InstanceID(fmt.Sprint("lost", n)), At: s.now.Add(-time.Hour), Young: true}},
				plan.Settings{Settle: settle}, func() []plan.Life { return nil })
		}
		lost := (size + 1) / 2
		if size > 6 {
			lost = size/2 - before
		}
		for _, n := range r.Perm(size)[:lost] {
			s.alive[n].ends = began.Add(time.Duration(r.Int64N(int64(4 * time.Second))))
		}
		for s.now.Before(began.Add(5 * time.Second)) {
			s.step()
		}
		if s.made != lost || s.onProbe != 0 {
			t.Fatalf("seed %d: of %d, %d ended in one moment; %d were made, %d of them through the window", seed, size, lost, s.made, s.onProbe)
		}
	}
}

// TestOneMomentCountsOnce: of forty, any eight may be lost, and beside them up to half in one moment. A
// second moment is one too many, however few each of them takes.
func TestOneMomentCountsOnce(t *testing.T) {
	for name, c := range map[string]struct{ first, second, limit int }{
		"one": {12, 0, 0}, "two of the same size": {3, 3, 1}, "a small one first": {2, 10, 1}, "a small one last": {10, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulated(40, time.Unix(1e9, 0), nil)
			ends := func(n int) {
				var failed []pacing.Failure
				for range n {
					failed = append(failed, pacing.Failure{At: s.now, Began: s.now, Young: true})
				}
				s.now = s.now.Add(time.Hour)
				if n > 0 {
					s.pacer.Died(s.group, failed, plan.Settings{Settle: settle}, s.lives)
				}
			}
			for range 8 {
				ends(1)
			}
			ends(c.first)
			ends(c.second)
			if got := s.pacer.Pace(s.group).Probation; got != c.limit {
				t.Errorf("%d may be on probation, want %d", got, c.limit)
			}
		})
	}
}

// TestARecoveredGroupIsLimitedByNothing: after any outage in which all its machines ended early, a
// group whose machines live is at size soon, and grows at once then.
func TestARecoveredGroupIsLimitedByNothing(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // the same each time
		size := 1 + r.IntN(200)
		start := time.Unix(1e9, 0)
		recovers := start.Add(time.Duration(r.Int64N(int64(48 * time.Hour))))
		s := newSimulated(size, start, func(began time.Time) machine {
			m := machine{registered: began}
			if began.Before(recovers) {
				m.ends = began.Add(time.Duration(1 + r.Int64N(int64(settle)-1)))
			}
			return m
		})
		for s.now.Before(recovers.Add(time.Hour)) {
			s.step()
		}
		if len(s.alive) != size {
			t.Fatalf("seed %d: an hour after the outage %d of %d live", seed, len(s.alive), size)
		}
		s.pacer.Converged(s.group)
		s.group.Size, s.onProbe = 1000, 0
		s.step()
		if len(s.alive) != s.group.Size || s.onProbe > 0 {
			t.Fatalf("seed %d: %d of %d were made at once, %d through the window", seed, len(s.alive), s.group.Size, s.onProbe)
		}
	}
}
