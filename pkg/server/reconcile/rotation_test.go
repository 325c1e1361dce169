package reconcile_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/plan"
)

// rotation watches the rotation of a group of five.
type rotation struct {
	s     *shard
	built map[string]map[fleet.InstanceID]bool // by the hash they were built with
}

const rotating = 5

// begin waits until the group is at size, and watches every write from then on.
func newRotation(s *shard) *rotation {
	r := &rotation{s: s, built: map[string]map[fleet.InstanceID]bool{}}
	s.wanted.edit(web, func(g *fleet.Group) { g.Size, g.DrainTimeout = rotating, 20*time.Second })
	s.lead()
	pass(time.Minute)
	s.expectRunning(web, rotating)
	return r
}

// watch checks each write before other hooks.
func (r *rotation) watch() {
	b := r.s.bucket
	next := b.onWrite
	b.onWrite = func(op string, i fleet.Instance) {
		r.check(op, i)
		if next != nil {
			next(op, i)
		}
	}
}

func (r *rotation) check(op string, i fleet.Instance) {
	if r.built[i.Hashes.Infra] == nil {
		r.built[i.Hashes.Infra] = map[fleet.InstanceID]bool{}
	}
	r.built[i.Hashes.Infra][i.ID] = true
	running, active := r.s.bucket.count(web)
	draining := 0
	for _, o := range r.s.bucket.records {
		if o.Phase == fleet.Draining {
			draining++
		}
	}
	switch {
	case active > rotating+1:
		r.s.t.Errorf("%s of %s: %d are active", op, i.ID, active)
	case draining > 1:
		r.s.t.Errorf("%s of %s: %d drain at one time", op, i.ID, draining)
	case op == "update-draining" && (running < rotating || i.Drain.Reason != plan.ReasonDrift):
		r.s.t.Errorf("%s drains because of %q while %d others run", i.ID, i.Drain.Reason, running)
	}
}

func (r *rotation) change(infra string) {
	r.s.wanted.edit(web, func(g *fleet.Group) { g.Hashes.Infra = infra })
	r.s.term.Enqueue(web)
}

// done checks that every instance was rebuilt with infra exactly once.
func (r *rotation) done(infra string) {
	t := r.s.t
	t.Helper()
	for _, id := range r.s.expectRunning(web, rotating) {
		if i, _ := r.s.bucket.get(id); i.Hashes.Infra != infra {
			t.Errorf("%s was built with %q: %s", id, i.Hashes.Infra, r.s.dump())
		}
	}
	if n := len(r.built[infra]); n != rotating {
		t.Errorf("%d were built with %q, want %d: %s", n, infra, rotating, r.s.dump())
	}
	if n := len(r.s.alive()); n != rotating {
		t.Errorf("%d machines run: %s", n, r.s.dump())
	}
}

func TestRotationOneAtATime(t *testing.T) {
	bubble(t, fake.Config{Boot: fake.Fixed(3 * time.Second)}, func(t *testing.T, s *shard) {
		r := newRotation(s)
		r.watch()
		r.change("i2")
		pass(10 * time.Minute)
		r.done("i2")
		before := s.bucket.written()
		pass(time.Hour / 3) // before any tombstone goes
		if n := s.bucket.written() - before; n > 2*rotating {
			t.Errorf("%d writes after it was done", n)
		}
	})
}

// TestSecondChangeWhileRotating: an instance built in between is rebuilt once more, the others only
// once.
func TestSecondChangeWhileRotating(t *testing.T) {
	for _, at := range []time.Duration{time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 75 * time.Second} {
		t.Run(at.String(), func(t *testing.T) {
			bubble(t, fake.Config{Boot: fake.Fixed(3 * time.Second)}, func(t *testing.T, s *shard) {
				r := newRotation(s)
				r.watch()
				r.change("i2")
				pass(at)
				between := len(s.running(web)) + len(s.records(web, fleet.Pending))
				r.change("i3")
				pass(10 * time.Minute)
				r.done("i3")
				if n := len(r.built["i2"]); n == 0 || n > rotating || between > rotating+1 {
					t.Errorf("%d were built in between", n)
				}
			})
		})
	}
}

// TestRotationOutlivesEveryCrash: the server dies at each step in turn, and the next continues. No
// instance is rebuilt twice.
func TestRotationOutlivesEveryCrash(t *testing.T) {
	for _, kind := range []string{
		"before create", "after create", "at create", "before update-pending", "after update-pending",
		"before update-running", "after update-running", "before update-draining", "after update-draining",
		"before update-deleting", "after update-deleting", "at delete", "before update-deleted", "after update-deleted",
	} {
		for n, crashed := 0, true; crashed && !t.Failed(); n++ {
			t.Run(fmt.Sprintf("%s/%d", kind, n), func(t *testing.T) {
				bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
					c := &crasher{s: s, kind: kind, left: n}
					s.world = fake.New(fake.Config{
						Seed: uint64(n), CreateLatency: fake.Fixed(50 * time.Millisecond), DeleteLatency: fake.Fixed(20 * time.Millisecond),
						Boot: fake.Fixed(3 * time.Second), Shutdown: fake.Fixed(time.Second), LandsAfterCancel: 0.5, OnCall: c.called,
					})
					s.bucket.latency = 5 * time.Millisecond
					r := newRotation(s)
					c.arm()
					r.watch()
					r.change("i2")
					for range 60 {
						pass(10 * time.Second)
						c.recover(t, fleet.Pending)
					}
					r.done("i2")
					crashed = c.crashed()
				})
			})
			if n == 0 && !crashed {
				t.Errorf("there is no step %s", kind)
			}
		}
	}
}
