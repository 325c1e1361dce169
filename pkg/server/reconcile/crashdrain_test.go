package reconcile_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// TestCrashAtEveryStepOfADrain drains managed and on-demand instances, and kills the server at
// each step in turn.
func TestCrashAtEveryStepOfADrain(t *testing.T) {
	for _, kind := range []string{
		"before create", "after create", "at create", "before update-pending", "after update-pending",
		"before update-running", "after update-running", "before update-draining", "after update-draining",
		"before update-deleting", "after update-deleting", "at delete", "at get",
		"before update-deleted", "after update-deleted", "before remove", "after remove",
	} {
		for n, crashed := 0, true; crashed && n < 12 && !t.Failed(); n++ {
			t.Run(fmt.Sprintf("%s/%d", kind, n), func(t *testing.T) {
				bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
					c := &crasher{s: s, kind: kind, left: n}
					s.world = fake.New(fake.Config{
						Seed: uint64(n), CreateLatency: fake.Fixed(50 * time.Millisecond), DeleteLatency: fake.Fixed(20 * time.Millisecond),
						Boot: fake.Fixed(time.Second), Shutdown: fake.Fixed(time.Second), LandsAfterCancel: 0.5, OnCall: c.called,
					})
					s.bucket.latency = 5 * time.Millisecond
					depart(t, s, c)
					crashed = c.crashed()
				})
			})
			if n == 0 && !crashed {
				t.Errorf("there is no step %s", kind)
			}
		}
	}
}

// depart plays the story. A call that is not confirmed is repeated, as clients do.
func depart(t *testing.T, s *shard, c *crasher) {
	s.wanted.edit(web, func(g *fleet.Group) { g.Size, g.DrainTimeout = 3, 20*time.Second })
	c.arm()
	s.lead()
	pass(10 * time.Second)
	c.recover(t, fleet.Pending, fleet.Running)
	s.expectManaged(web, 3)

	var asked []fleet.InstanceID
	for range 2 {
		r := s.demanded(web)
		c.insist(func() error {
			if _, ok := s.term.ledger.Get(r.ID); ok {
				return nil // it was confirmed, or the next leader found it
			}
			_, err := s.term.ledger.Create(context.Background(), r)
			return err
		})
		asked = append(asked, r.ID)
	}
	s.term.Enqueue(web)
	pass(10 * time.Second)
	c.recover(t, fleet.Pending, fleet.Running)
	for _, id := range asked {
		s.expectPhase(id, fleet.Running)
	}

	replaced := s.managed(web)[0]
	for _, id := range []fleet.InstanceID{replaced, asked[0]} {
		c.insist(func() error { return s.change(id, func(i *fleet.Instance) { i.RemovalAskedAt = new(time.Now()) }) })
	}
	pass(30 * time.Second)
	c.recover(t)
	pass(30 * time.Second)
	s.expectManaged(web, 3)
	s.expectPhase(replaced, fleet.Deleted)
	s.expectPhase(asked[0], fleet.Deleted)
	s.expectPhase(asked[1], fleet.Running)

	s.wanted.edit(web, func(g *fleet.Group) { g.Size, g.DrainTimeout = 1, time.Hour })
	s.term.Enqueue(web)
	pass(10 * time.Second)
	c.recover(t)
	for _, id := range s.records(web, fleet.Draining) {
		c.insist(func() error { return s.change(id, func(i *fleet.Instance) { i.Drain.AckedAt = new(time.Now()) }) })
	}
	pass(10 * time.Second)
	c.recover(t)
	s.expectManaged(web, 1)
	if n := len(s.records(web, fleet.Draining, fleet.Deleting)); n > 0 {
		t.Errorf("%d leave still: %s", n, s.dump())
	}
	for range 2 { // the tombstones go
		pass(45 * time.Minute)
		c.recover(t)
	}
	if len(s.world.VMs()) != 2 || len(s.bucket.all()) != 2 {
		t.Errorf("something was left behind: %s", s.dump())
	}
}

// insist retries a call without an answer, like a client does, at the server that leads then.
func (c *crasher) insist(call func() error) {
	c.s.t.Helper()
	err := call()
	if err == nil {
		return
	}
	c.recover(c.s.t)
	if err := call(); err != nil {
		c.s.t.Fatalf("asked twice: %v", err)
	}
}
