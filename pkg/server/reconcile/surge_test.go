package reconcile_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// surged watches how many instances a shard has beyond its sizes, while sizes don't change and no
// instance dies.
type surged struct {
	s      *shard
	beyond map[fleet.GroupKey]int
	phases map[fleet.InstanceID]fleet.Phase
	sum    int // of those beyond, over all groups
	most   int // that sum was
	limit  int
}

// watchSurge checks every write from now on. All groups must be at size.
func watchSurge(s *shard, limit int) *surged {
	w := &surged{s: s, beyond: map[fleet.GroupKey]int{}, phases: map[fleet.InstanceID]fleet.Phase{}, limit: limit}
	for _, r := range s.bucket.all() {
		w.phases[r.ID] = r.Phase
	}
	s.bucket.onWrite = w.write
	return w
}

func (w *surged) write(_ string, i fleet.Instance) {
	there := func(p fleet.Phase) int { return map[bool]int{true: 1}[p.Active() || p == fleet.Draining] }
	w.add(i.GroupKey(), there(i.Phase)-there(w.phases[i.ID]))
	w.phases[i.ID] = i.Phase
}

func (w *surged) add(key fleet.GroupKey, n int) {
	w.sum += max(0, w.beyond[key]+n) - max(0, w.beyond[key])
	w.beyond[key] += n
	w.most = max(w.most, w.sum)
	g, _ := w.s.wanted.Group(key)
	if own := g.MaxSurge.Of(g.Size); w.beyond[key] > own || w.sum > w.limit {
		w.s.t.Errorf("%d beyond the size of %s, of at most %d; %d of the shard, of at most %d", w.beyond[key], key, own, w.sum, w.limit)
	}
}

// seen returns how many instances there are beyond the sizes, and the maximum so far.
func (w *surged) seen() (now, most int) {
	w.s.bucket.mu.Lock()
	defer w.s.bucket.mu.Unlock()
	return w.sum, w.most
}

// allow sets the limit from now on.
func (w *surged) allow(limit int) {
	w.s.bucket.mu.Lock()
	defer w.s.bucket.mu.Unlock()
	w.limit = limit
}

// rotated returns how many running instances were built with infra.
func (s *shard) rotated(infra string) (n int) {
	for _, r := range s.bucket.all() {
		if r.Phase == fleet.Running && r.Hashes.Infra == infra {
			n++
		}
	}
	return n
}

// many runs groups of the same size that share a template.
func (s *shard) many(groups, size int, surge fleet.Surge) {
	for n := range groups {
		s.wanted.edit(fleet.GroupKey{Tenant: "default", Name: fmt.Sprintf("g%03d", n)}, func(g *fleet.Group) {
			g.Size, g.DrainTimeout, g.MaxSurge = size, time.Minute, surge
		})
	}
	s.wanted.settings.ReportInterval, s.wanted.settings.Settle = 5*time.Minute, 30*time.Second
	s.lead()
	pass(5 * time.Minute)
	if n := s.rotated("i1"); n != groups*size {
		s.t.Fatalf("%d run: %s", n, s.dump())
	}
}

// build changes the template of all groups.
func (s *shard) rebuild(infra string) {
	for _, key := range s.wanted.Keys() {
		s.wanted.edit(key, func(g *fleet.Group) { g.Hashes.Infra = infra })
	}
	s.term.Enqueue()
}

// until waits for a condition, and returns how long it took.
func until(t *testing.T, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > limit {
			t.Fatalf("not within %s: %s", limit, what)
		}
		pass(time.Minute)
	}
	return time.Since(began)
}

// TestSharedTemplate: an edit of the template of 200 groups of 3 never adds more than a tenth of the
// shard, even if the leader changes half-way, and all groups finish.
func TestSharedTemplate(t *testing.T) {
	bubble(t, fake.Config{Boot: fake.Fixed(3 * time.Second)}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) { c.MaxSurge = fleet.Surge{Percent: 10} }
		s.many(200, 3, fleet.Surge{})
		w := watchSurge(s, 60)
		s.rebuild("i2")
		until(t, time.Hour, "half of them", func() bool { return s.rotated("i2") > 300 })
		_ = s.stop()
		pass(5 * time.Second)
		s.lead()
		took := until(t, time.Hour, "all of them", func() bool { return s.rotated("i2") == 600 })
		if _, most := w.seen(); most != 60 {
			t.Errorf("at most %d beyond the sizes, of the 60 that may be", most)
		}
		// Ten rounds of boot, settling and drain, of which half are left.
		if took > 15*time.Minute {
			t.Errorf("the second half took %s", took)
		}
		pass(10 * time.Minute)
		if left, _ := w.seen(); left != 0 {
			t.Errorf("%d are left beyond the sizes", left)
		}
	})
}

// TestLargeGroupRotates: a thousand instances, 5 % at a time, with the default settings. It takes as
// many rounds as any size.
func TestLargeGroupRotates(t *testing.T) {
	bubble(t, fake.Config{Boot: fake.Fixed(30 * time.Second)}, func(t *testing.T, s *shard) {
		size := 1000
		if testing.Short() || underRace { // make test-race runs it once more without the race detector
			size = 100
		}
		s.adjust = func(c *reconcile.Config) { c.MaxSurge = fleet.Surge{Percent: 10} }
		s.many(1, size, fleet.Surge{Percent: 5})
		s.wanted.settings.Settle = 2 * time.Minute
		for _, key := range s.wanted.Keys() {
			s.wanted.edit(key, func(g *fleet.Group) { g.DrainTimeout = 5 * time.Minute })
		}
		w := watchSurge(s, size/10)
		s.rebuild("i2")
		took := until(t, 4*time.Hour, "all of it", func() bool { return s.rotated("i2") == size })
		t.Logf("%d in %s", size, took)
		if _, most := w.seen(); most != size/20 {
			t.Errorf("at most %d beyond the size, of the %d that may be", most, size/20)
		}
	})
}

// TestFailingGroupGivesItsSurgeBack: with a MaxSurge of one, a group whose creates are refused does
// not keep it between its attempts.
func TestFailingGroupGivesItsSurgeBack(t *testing.T) {
	bubble(t, fake.Config{Boot: fake.Fixed(3 * time.Second)}, func(t *testing.T, s *shard) {
		s.adjust = func(c *reconcile.Config) { c.MaxSurge = fleet.Surge{} }
		s.many(4, 3, fleet.Surge{})
		w := watchSurge(s, 1)
		bad := s.wanted.Keys()[0]
		s.build = func(i fleet.Instance) error {
			if i.GroupKey() == bad {
				return errors.New("no such image")
			}
			return nil
		}
		s.rebuild("i2")
		took := until(t, time.Hour, "the other groups", func() bool { return s.rotated("i2") == 9 })
		_, most := w.seen()
		if n := len(s.running(bad)); n != 3 || most != 1 {
			t.Errorf("%d of the group that fails run; at most %d beyond the sizes", n, most)
		}
		// Nine, one after the other: boot, settling, drain.
		if took > 20*time.Minute {
			t.Errorf("it took %s", took)
		}
		// The order of turns is not promised; the failing group may be the last.
		until(t, time.Hour, "an attempt of the group that fails", func() bool { return len(s.reported(problems.ReasonBuild)) > 0 })
	})
}

// TestShardSurgeShrinks: when MaxSurge shrinks, existing replacements stay until they have replaced
// an instance.
func TestShardSurgeShrinks(t *testing.T) {
	bubble(t, fake.Config{Boot: fake.Fixed(3 * time.Second)}, func(t *testing.T, s *shard) {
		s.many(1, 10, fleet.Surge{Percent: 50})
		key := s.wanted.Keys()[0]
		w := watchSurge(s, 5)
		s.rebuild("i2")
		pass(10 * time.Second)
		if came, _ := w.seen(); came != 5 {
			t.Fatalf("%d are beyond the size, want 5", came)
		}
		s.reconfigure(func(t *reconcile.Tuning) { t.MaxSurge = fleet.Surge{} }, nil)
		for range 10 {
			s.term.Enqueue(key)
			pass(time.Second)
		}
		if left, _ := w.seen(); left != 5 {
			t.Fatalf("%d are beyond the size, want the 5 that came", left)
		}
		until(t, time.Hour, "the five that came", func() bool { left, _ := w.seen(); return left <= 1 })
		w.allow(1)
		until(t, time.Hour, "all of them", func() bool { return s.rotated("i2") == 10 })
		for _, r := range s.bucket.all() {
			if r.Reason == plan.ReasonScaleDown {
				t.Errorf("%s was made in vain", r.ID)
			}
		}
	})
}
