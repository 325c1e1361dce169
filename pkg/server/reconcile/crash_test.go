package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// crasher ends the leading server at one step of what it does: just before or
// just after a write of the store, or as a call to the provider begins.
type crasher struct {
	s    *shard
	kind string // of step
	left int    // steps of the kind to go
	on   bool
	done bool
}

// step counts one. Nothing of the server lands from the crash on. The bucket is
// locked.
func (c *crasher) step(kind string) bool {
	if !c.on || c.done || kind != c.kind {
		return false
	}
	c.left--
	if c.left >= 0 {
		return false
	}
	c.done = true
	c.s.bucket.epoch++
	c.s.term.end()
	return true
}

func (c *crasher) arm() {
	b := c.s.bucket
	b.mu.Lock()
	defer b.mu.Unlock()
	c.on = true
	b.fail = func(op string, _ fleet.InstanceID) (bool, error) {
		if c.step("before " + op) {
			return false, context.Canceled
		}
		return true, nil
	}
	b.onWrite = func(op string, _ fleet.Instance) { c.step("after " + op) }
}

// disarm reports whether it was armed. Calls of the dead server may still be in progress.
func (c *crasher) disarm() bool {
	c.s.bucket.mu.Lock()
	defer c.s.bucket.mu.Unlock()
	was := c.on
	c.on = false
	return was
}

func (c *crasher) crashed() bool {
	c.s.bucket.mu.Lock()
	defer c.s.bucket.mu.Unlock()
	return c.done
}

func (c *crasher) called(call fake.Call) {
	if call.By == "agents" || c.s.term == nil {
		return
	}
	c.s.bucket.mu.Lock()
	defer c.s.bucket.mu.Unlock()
	c.step("at " + string(call.Op))
}

// TestCrashAtEveryStep drives a shard through growing, losing and shrinking, and
// kills the server at each step in turn. The next one finishes with the same ids
// and leaves nothing behind.
func TestCrashAtEveryStep(t *testing.T) {
	for _, kind := range []string{
		"before create", "after create", "at create", "before update-pending", "after update-pending",
		"before update-running", "after update-running", "at get", "before update-deleting", "after update-deleting",
		"at delete", "before update-deleted", "after update-deleted", "before remove", "after remove", "at list",
	} {
		for n, crashed := 0, true; crashed; n++ {
			t.Run(fmt.Sprintf("%s/%d", kind, n), func(t *testing.T) {
				bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
					c := &crasher{s: s, kind: kind, left: n}
					s.world = fake.New(fake.Config{
						Seed: uint64(n), CreateLatency: fake.Fixed(50 * time.Millisecond), DeleteLatency: fake.Fixed(20 * time.Millisecond),
						Boot: fake.Fixed(time.Second), Shutdown: fake.Fixed(time.Second), LandsAfterCancel: 0.5, OnCall: c.called,
					})
					s.bucket.latency = 5 * time.Millisecond
					live(t, s, c)
					crashed = c.crashed()
				})
			})
			if n == 0 && !crashed {
				t.Errorf("there is no step %s", kind)
			}
			if t.Failed() || n == 8 { // lists are endless
				break
			}
		}
	}
}

// live plays the story, and starts the next server after a crash.
func live(t *testing.T, s *shard, c *crasher) {
	c.arm()
	s.size(web, 2)
	s.lead()
	pass(10 * time.Second)
	c.recover(t, fleet.Pending, fleet.Running)
	s.expectRunning(web, 2)

	s.world.Kill(s.running(web)[0])
	pass(10 * time.Second)
	c.recover(t)
	s.expectRunning(web, 2)

	s.size(web, 1)
	pass(10 * time.Second)
	c.recover(t)
	pass(45 * time.Minute) // the tombstones go
	c.recover(t)
	pass(45 * time.Minute)
	s.expectRunning(web, 1)
	if len(s.world.VMs()) != 1 || len(s.bucket.all()) != 1 {
		t.Errorf("something was left behind: %s", s.dump())
	}
}

// recover starts the next server if this one has crashed, and checks that it
// continues with the records in these phases.
func (c *crasher) recover(t *testing.T, phases ...fleet.Phase) {
	t.Helper()
	if !c.crashed() || !c.disarm() {
		return
	}
	_ = c.s.stop() // any error: it is dead
	ids := c.s.records(web, phases...)
	pass(5 * time.Second)
	c.s.lead()
	pass(2 * time.Minute)
	for _, id := range ids {
		if !slices.Contains(c.s.running(web), id) {
			t.Errorf("instance %s was not gone on with: %s", id, c.s.dump())
		}
	}
}
