package roster_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
)

// TestOnlyThoseWithARecordAreLetIn, and one without, which goes on calling, costs a request
// a minute.
func TestOnlyThoseWithARecordAreLetIn(t *testing.T) {
	bubble(t, func(_ *testing.T, d *desk) {
		a, b := caller("prod", 1), caller("prod", 2)
		d.put(record(a))
		d.welcome(a)
		d.refused(b, "there is no operator "+b.ID)
		d.refused(caller("default", 1), "there is no operator") // another tenant's record
		d.refused(pki.Caller{Tenant: "prod", ID: "knd01jw51r7hsec0syhzdhqda0001"}, "names no operator")
		d.refused(pki.Caller{Tenant: "prod", ID: "../x"}, "names no operator")
		o := record(b)
		d.put(o.Remove("opr", time.Now()))
		before := d.counts.Counts()
		for range 50 {
			d.refused(b, "there is no operator")
			d.welcome(a)
		}
		d.wants(before, objecttest.Counts{}, "within a minute")
		time.Sleep(61 * time.Second)
		d.refused(b, "operator "+b.ID+" was removed")
		time.Sleep(time.Hour)
		before = d.counts.Counts()
		d.refused(b, "was removed")
		d.wants(before, objecttest.Counts{}, "a removal is for good")
	})
}

// TestNobodyThereCostsNothing, and any number who are there, one listing a minute.
func TestNobodyThereCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		for n := range 20 {
			d.put(record(caller("prod", n)))
		}
		before := d.counts.Counts()
		time.Sleep(time.Hour)
		d.wants(before, objecttest.Counts{}, "no operator there")

		leave := make([]func(), 20)
		for n := range leave {
			d.welcome(caller("prod", n))
			_, out, err := d.Join(caller("prod", n))
			if err != nil {
				t.Fatal(err)
			}
			leave[n] = out
		}
		d.wants(before, objecttest.Counts{Get: 40}, "first calls: each record, and whether it has a tombstone")
		before = d.counts.Counts()
		time.Sleep(time.Hour + time.Second)
		d.wants(before, objecttest.Counts{List: 60}, "twenty there for an hour")
		if !d.Here("prod", record(caller("prod", 3)).ID) {
			t.Error("one that watches is not there")
		}

		for _, out := range leave {
			out()
		}
		time.Sleep(2 * time.Minute)
		before = d.counts.Counts()
		time.Sleep(time.Hour)
		d.wants(before, objecttest.Counts{}, "all have left")
		if d.Here("prod", record(caller("prod", 3)).ID) {
			t.Error("one that has left is there")
		}
	})
}

// TestAnotherShardsRemovalIsNoticed: within a minute, for operators with watches and with
// calls; so is a record that was deleted by hand.
func TestAnotherShardsRemovalIsNoticed(t *testing.T) {
	for name, end := range map[string]func(*desk, pki.Caller){
		"removed": func(d *desk, c pki.Caller) { d.put(record(c).Remove("opr", time.Now())) },
		"deleted": (*desk).delete,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				watches, calls, other := caller("prod", 1), caller("prod", 2), caller("prod", 3)
				cuts := map[pki.Caller]<-chan struct{}{}
				for _, c := range []pki.Caller{watches, calls, other} {
					d.put(record(c))
					d.welcome(c)
					if c != calls {
						cut, leave, err := d.Join(c)
						if err != nil {
							t.Fatal(err)
						}
						defer leave()
						cuts[c] = cut
					}
				}
				time.Sleep(10 * time.Minute)
				d.welcome(calls)
				end(d, watches)
				end(d, calls)
				for range 60 {
					time.Sleep(time.Second)
					_ = d.judge(calls) // keeps calling
				}
				synctest.Wait()
				d.refused(watches, watches.ID)
				d.refused(calls, calls.ID)
				if !closed(cuts[watches]) {
					t.Error("its stream goes on")
				}
				if d.welcome(other); closed(cuts[other]) {
					t.Error("another's stream was cut")
				}
				if _, _, err := d.Join(watches); !errors.Is(err, rpc.CertificateRevoked) {
					t.Errorf("it may open another: %v", err)
				}
			})
		})
	}
}

// TestRemovedHoldsAtOnce: even against a read that started before the removal and returns
// after it.
func TestRemovedHoldsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		c, id := caller("prod", 1), record(caller("prod", 1)).ID
		d.put(record(c))
		d.welcome(c)
		cut, leave, err := d.Join(c)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		var again sync.WaitGroup
		d.faults.Set(objecttest.Always(objecttest.Outcome{Latency: time.Second}))
		again.Go(func() { _ = d.Read(t.Context(), c) })
		synctest.Wait()
		d.Removed("prod", id)
		if d.refused(c, "was removed"); !closed(cut) {
			t.Error("its stream goes on")
		}
		again.Wait() // returns allowed, as the store still does
		d.refused(c, "was removed")
		time.Sleep(time.Hour)
		d.refused(c, "was removed")

		stranger := caller("prod", 9)
		d.Removed("prod", record(stranger).ID) // not known yet
		d.refused(stranger, "was removed")
	})
}

// TestStoreInTrouble: while the store fails, admitted operators stay admitted, and no others
// are.
func TestStoreInTrouble(t *testing.T) {
	for name, trouble := range map[string]objecttest.Outcome{"down": {Fault: objecttest.Dropped}, "hung": {Fault: objecttest.Hung}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				watches, seldom, stranger := caller("prod", 1), caller("prod", 2), caller("prod", 3)
				for _, c := range []pki.Caller{watches, seldom, stranger} {
					d.put(record(c))
				}
				d.welcome(watches)
				d.welcome(seldom)
				cut, leave, err := d.Join(watches)
				if err != nil {
					t.Fatal(err)
				}
				defer leave()
				d.faults.Set(objecttest.Always(trouble))
				time.Sleep(time.Hour)
				d.welcome(watches)
				began := time.Now()
				d.welcome(seldom)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("a call waited %s for the store", took)
				}
				began = time.Now()
				d.welcome(seldom)
				if took := time.Since(began); took > 0 {
					t.Errorf("the next waited %s", took)
				}
				if closed(cut) {
					t.Error("a stream was cut")
				}
				if err := d.judge(stranger); !errors.Is(err, rpc.Unavailable) {
					t.Errorf("the verdict on one that was never let in is %v", err)
				}
				if err := d.Read(t.Context(), watches); !errors.Is(err, rpc.Unavailable) {
					t.Errorf("a read says %v", err)
				}

				d.delete(watches)
				d.faults.Set(nil)
				time.Sleep(2 * time.Minute)
				if d.refused(watches, "there is no"); !closed(cut) {
					t.Error("its stream goes on")
				}
				d.welcome(seldom)
				d.welcome(stranger)
			})
		})
	}
}

// TestDamagedRecord: a damaged record neither refuses nor admits, and does not delay the
// removal of others.
func TestDamagedRecord(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		damaged, known, others := caller("prod", 1), caller("prod", 2), []pki.Caller{}
		d.put(record(known))
		d.welcome(known)
		_, leave, err := d.Join(known)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		for n := range 10 {
			c := caller("prod", 10+n)
			d.put(record(c))
			d.welcome(c)
			others = append(others, c)
		}
		for _, c := range []pki.Caller{damaged, known} {
			if _, err := d.mem.Put(t.Context(), record(c).Key(), []byte("{"), object.Precondition{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range others {
			d.delete(c)
		}
		time.Sleep(61 * time.Second)
		d.welcome(known)
		if err := d.judge(damaged); !errors.Is(err, rpc.Unavailable) || !strings.Contains(err.Error(), record(damaged).Key()) {
			t.Errorf("the verdict is %v", err)
		}
		for _, c := range others {
			if verdict, ok := d.Known(c); ok && verdict == nil {
				t.Errorf("%s is welcome", c.ID)
			}
		}
	})
}

// TestDoubt: the record is read again by the next call.
func TestDoubt(t *testing.T) {
	bubble(t, func(_ *testing.T, d *desk) {
		c := caller("prod", 1)
		d.put(record(c))
		d.welcome(c)
		d.put(record(c).Remove("opr", time.Now()))
		d.Doubt("prod", record(c).ID)
		d.refused(c, "was removed")
	})
}

// TestCallsAtOnceCostOneRead: concurrent calls share one read, and a caller that leaves does
// not cancel it for the others.
func TestCallsAtOnceCostOneRead(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		c := caller("prod", 1)
		d.put(record(c))
		d.faults.Set(objecttest.Always(objecttest.Outcome{Latency: time.Second}))
		leaves, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if err := d.Verify(leaves, c); !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that left got %v", err)
			}
		})
		synctest.Wait()
		for range 20 {
			all.Go(func() { d.welcome(c) })
		}
		synctest.Wait()
		leave()
		all.Wait()
		d.wants(objecttest.Counts{}, objecttest.Counts{Get: 2}, "twenty at once")
	})
}

// TestMemoryIsBounded: an operator with a stream is never forgotten.
func TestMemoryIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		c := caller("prod", 0)
		d.put(record(c))
		d.welcome(c)
		cut, leave, err := d.Join(c)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		for n := range 9999 {
			d.refused(caller("prod", n+1), "there is no operator")
		}
		d.Removed("prod", record(c).ID)
		if !closed(cut) {
			t.Error("it was forgotten")
		}
		before := d.counts.Counts()
		for n := range 9999 {
			d.refused(caller("prod", n+1), "there is no operator")
		}
		if asked := d.asked(before).Get; asked < 1000 {
			t.Errorf("it remembers all of 10,000: only %d were looked up again", asked)
		}
	})
}

// TestFoundOnce: an operator whose record was written without a leader is told of once, when it is
// admitted; others are not, nor is one that is refused.
func TestFoundOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		direct, registered, gone := record(caller("prod", 1)), record(caller("prod", 2)), record(caller("prod", 3))
		registered.Epoch = 7
		for _, o := range []fleet.Operator{direct, registered, gone.Remove("opr", time.Now())} {
			d.put(o)
		}
		for range 3 {
			d.welcome(caller("prod", 1))
			d.welcome(caller("prod", 2))
			d.refused(caller("prod", 3), "was removed")
			time.Sleep(time.Hour)
		}
		if len(d.found) != 1 || d.found[0].ID != direct.ID {
			t.Errorf("told of %+v, want only %s", d.found, direct.ID)
		}
	})
}
