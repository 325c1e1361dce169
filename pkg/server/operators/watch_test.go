package operators_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/broadcast"
	"github.com/nstance/nstance/pkg/server/operators"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// soon waits for a condition, for an hour of simulated time: with recurring timers an
// unbounded wait would never end.
func soon[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Hour):
		t.Fatalf("not within an hour: %s", what)
	}
	return v
}

func TestWatchGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web, _ := f.group("default", "web", 2), f.group("default", "db", 0)
		other := f.group("prod", "web", 7)
		w := f.watchGroups("default")
		same(t, told(w.take()), "db:0/0", "web:0/2", "end")

		// An instance runs and reports; further reports are not events.
		i := record(1, "default", "web", fleet.Running)
		f.put(i)
		f.watches.Changed(web, i.ID)
		time.Sleep(time.Second)
		if have := w.take(); len(have) != 1 || have[0].GetGroup().GetPendingSize() != 1 {
			t.Errorf("told %v", have)
		}
		for n := range 5 {
			f.locked(func() { f.health[i.ID] = operators.Health{Connected: true, LastReportAt: time.Now()} })
			f.watches.Changed(web, i.ID)
			f.watches.Changed(other, "")
			time.Sleep(time.Second)
			if have := told(w.take()); n > 0 {
				same(t, have)
			} else {
				same(t, have, "web:1/2")
			}
		}

		// A group without definition is gone with its last instance.
		f.locked(func() { delete(f.groups, web) })
		f.watches.Changed(fleet.GroupKey{}, "")
		time.Sleep(time.Second)
		same(t, told(w.take()), "web:1/0")
		i.Phase = fleet.Deleted
		f.put(i)
		f.watches.Changed(web, i.ID)
		time.Sleep(time.Second)
		same(t, told(w.take()), "-web")
	})
}

// TestWatchGroupsWithoutParts: a watch that omits the instances or vars of groups gets everything
// else, and other watches and answers still have them.
func TestWatchGroupsWithoutParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := f.group("default", "web", 2)
		f.locked(func() { f.groups[web] = fleet.Group{Key: web, Size: 2, Vars: map[string]any{"text": "a"}} })
		i := record(1, "default", "web", fleet.Running)
		i.Provider.ID = "i-a"
		f.put(i)
		f.watches.Changed(web, i.ID)
		all := f.watchGroups("default")
		watch := func(req *nstancev1.WatchGroupsRequest) *wire[nstancev1.WatchGroupsResponse] {
			return open(f, "default", "opr", func(s grpc.ServerStreamingServer[nstancev1.WatchGroupsResponse]) error {
				return f.service.WatchGroups(req, s)
			})
		}
		bare := watch(&nstancev1.WatchGroupsRequest{OmitInstances: true, OmitVars: true})
		some := watch(&nstancev1.WatchGroupsRequest{OmitVars: true})
		time.Sleep(time.Second) // changes are sent together, a moment later
		last := func(w *wire[nstancev1.WatchGroupsResponse]) (g *nstancev1.GroupStatus) {
			for _, e := range w.take() {
				if e.GetGroup() != nil {
					g = proto.CloneOf(e.GetGroup())
				}
			}
			return g
		}
		want, without, withInstances := last(all), last(bare), last(some)
		if len(want.GetInstances()) != 1 || len(want.GetVars().GetFields()) != 1 {
			t.Fatalf("a watch of all has %v, want one instance and one var", want)
		}
		want.Vars = nil
		if !proto.Equal(withInstances, want) {
			t.Errorf("without vars: have %v, want %v", withInstances, want)
		}
		want.Instances = nil
		if !proto.Equal(without, want) {
			t.Errorf("without both: have %v, want %v", without, want)
		}
	})
}

// TestWatchInstances: a leaving instance is sent until it is gone, and only when it has
// changed.
func TestWatchInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for n, phase := range []fleet.Phase{fleet.Pending, fleet.Running, fleet.Draining, fleet.Deleting, fleet.Deleted} {
			f.put(record(n+1, "default", "web", phase))
		}
		f.put(record(9, "prod", "web", fleet.Draining))
		w := f.watchInstances("default")
		same(t, seen(w.take()), "3 draining", "4 deleting", "end")

		change := func(i fleet.Instance) {
			f.put(i)
			f.watches.Changed(i.GroupKey(), i.ID)
			time.Sleep(time.Second)
		}
		change(record(2, "default", "web", fleet.Running))
		same(t, seen(w.take()))
		change(record(2, "default", "web", fleet.Draining))
		same(t, seen(w.take()), "2 draining")
		f.locked(func() { f.health[record(2, "", "", "").ID] = operators.Health{LastReportAt: time.Now()} })
		change(record(2, "default", "web", fleet.Draining))
		same(t, seen(w.take())) // only further reports
		acked := record(2, "default", "web", fleet.Draining)
		acked.Drain = &fleet.Drain{Reason: "expired", DeleteAt: time.Now()}
		change(acked)
		same(t, seen(w.take()), "2 draining")
		change(record(2, "default", "web", fleet.Deleting))
		change(record(2, "default", "web", fleet.Deleted))
		change(record(9, "prod", "web", fleet.Deleted))
		same(t, seen(w.take()), "2 deleting", "2 deleted")
	})
}

// TestPrunedInstance: a removed record is sent as deleted, once, to readers that received the
// instance as draining.
func TestPrunedInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for n := 1; n <= 3; n++ {
			f.put(record(n, "default", "web", fleet.Draining))
		}
		w := f.watchInstances("default")
		same(t, seen(w.take()), "1 draining", "2 draining", "3 draining", "end")
		f.put(record(1, "default", "web", fleet.Deleted))
		f.watches.Changed(fleet.GroupKey{}, record(1, "", "", "").ID)
		time.Sleep(time.Second)
		same(t, seen(w.take()), "1 deleted")
		f.locked(func() { clear(f.instances) })
		for n := 1; n <= 2; n++ { // the third one was never received
			f.watches.Changed(fleet.GroupKey{}, record(n, "", "", "").ID)
		}
		time.Sleep(time.Second)
		events := w.take()
		if same(t, seen(events), "2 deleted"); events[0].GetInstance().GetDeletedAt() == nil {
			t.Errorf("told %v", events)
		}
		time.Sleep(2 * broadcast.ResyncInterval)
		same(t, seen(w.take()), "3 deleted")
		same(t, seen(f.watchInstances("default").take()), "end")
	})
}

func TestWatchErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		w, other := f.watchErrors("default"), f.watchErrors("prod")
		synctest.Wait()
		f.problems.Publish(fleet.Problem{
			At: time.Now(), Reason: "ProviderError", Message: "no", Group: fleet.GroupKey{Tenant: "default", Name: "web"}, Instance: "knd1",
		})
		have := w.take()
		if len(have) != 1 || have[0].GetReason() != "ProviderError" || have[0].GetMessage() != "no" || have[0].GetGroup() != "web" ||
			have[0].GetInstanceId() != "knd1" || !have[0].GetAt().AsTime().Equal(time.Now()) {
			t.Errorf("told %v", have)
		}
		if have := other.take(); len(have) > 0 {
			t.Errorf("another tenant is told %v", have)
		}
	})
}

// TestSlowReaders: a reader that receives nothing is disconnected after a while, one with too
// much queued as soon as the send in progress ends, and no other.
func TestSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := f.group("default", "web", 1)
		slow, quick, errs := f.watchGroups("default"), f.watchGroups("default"), f.watchErrors("default")
		time.Sleep(time.Second) // so that both have their snapshots
		same(t, told(slow.take()), "web:0/1", "end")
		slow.halt()
		errs.halt()
		for range operators.MaxPendingProblems + 2 {
			f.problems.Publish(fleet.Problem{Group: web})
			synctest.Wait()
		}
		f.group("default", "web", 2)
		f.watches.Changed(web, "")
		time.Sleep(operators.SendLimit - time.Second)
		for name, done := range map[string]chan struct{}{"groups": slow.done, "errors": errs.done} {
			select {
			case <-done:
				t.Errorf("the watch of %s ended early: %v, %v", name, slow.err, errs.err)
			default:
			}
		}
		time.Sleep(2 * time.Second)
		soon(t, slow.done, "the end of the slow watch")
		soon(t, errs.done, "the end of the watch of errors")
		if !errors.Is(slow.err, rpc.Exhausted) || !errors.Is(errs.err, rpc.Exhausted) {
			t.Errorf("the slow ones got %v and %v", slow.err, errs.err)
		}
		same(t, told(quick.take()), "web:0/1", "end", "web:0/2")
	})
}

// TestEndOfTerm: the end of the term ends every watch, even one blocked by its reader, with
// the leader's address.
func TestEndOfTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := f.group("default", "web", 1)
		groups, instances, errs := f.watchGroups("default"), f.watchInstances("default"), f.watchErrors("default")
		synctest.Wait()
		groups.halt()
		f.group("default", "web", 2)
		f.watches.Changed(web, "")
		time.Sleep(time.Second)
		f.locked(func() { f.over = true })
		f.end()
		synctest.Wait()
		for _, done := range []chan struct{}{groups.done, instances.done, errs.done} {
			soon(t, done, "the end of the watch")
		}
		for _, err := range []error{groups.err, instances.err, errs.err} {
			if !errors.Is(err, rpc.Unavailable) || err.Error() != "another server leads" {
				t.Errorf("it ended with %v", err)
			}
		}
		late := f.watchGroups("default")
		soon(t, late.done, "the end of the late watch")
		if !errors.Is(late.err, rpc.Unavailable) {
			t.Errorf("a later one: %v", late.err)
		}
	})
}

// TestRemovedWatcher: the watches of a removed operator end, even one blocked by its reader,
// with that reason.
func TestRemovedWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := f.group("default", "web", 1)
		groups, instances, errs := f.watchGroups("default"), f.watchInstances("default"), f.watchErrors("default")
		synctest.Wait()
		groups.halt()
		f.group("default", "web", 2)
		f.watches.Changed(web, "")
		time.Sleep(time.Second)
		if n := f.open.Load(); n != 3 {
			t.Errorf("%d streams are counted, want 3", n)
		}
		close(f.cut)
		for _, done := range []chan struct{}{groups.done, instances.done, errs.done} {
			<-done
		}
		for _, err := range []error{groups.err, instances.err, errs.err} {
			if !errors.Is(err, rpc.CertificateRevoked) {
				t.Errorf("it ended with %v", err)
			}
		}
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d streams are counted after all have ended", n)
		}
	})
}

// TestTooMany: open watches are limited per operator, per tenant and in total, and the end of
// one makes room.
func TestTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		call := func(s grpc.ServerStreamingServer[nstancev1.WatchErrorsResponse]) error {
			return f.service.WatchErrors(&nstancev1.WatchErrorsRequest{}, s)
		}
		refused := func(tenant, id, text string) {
			t.Helper()
			w := open(f, tenant, id, call)
			soon(t, w.done, "the end of the watch")
			if !errors.Is(w.err, rpc.Exhausted) || !strings.Contains(w.err.Error(), text) {
				t.Errorf("one more of %s %s: %v", tenant, id, w.err)
			}
		}
		var first *wire[nstancev1.WatchErrorsResponse]
		for n := range operators.MaxWatchesPerOperator {
			w := open(f, "a", "opr0", call)
			if n == 0 {
				first = w
			}
			synctest.Wait()
		}
		refused("a", "opr0", "operator opr0")
		first.stop()
		soon(t, first.done, "the end of the first watch")
		open(f, "a", "opr0", call)
		for n := operators.MaxWatchesPerOperator; n < operators.MaxWatchesPerTenant; n++ {
			open(f, "a", fmt.Sprint("opr", n), call)
		}
		synctest.Wait()
		refused("a", "opr-new", "tenant a")
		for n := operators.MaxWatchesPerTenant; n < operators.MaxWatches; n++ {
			open(f, "b", fmt.Sprint("opr", n), call)
		}
		synctest.Wait()
		refused("c", "opr0", "256")
	})
}

// TestManyReports: however many instances change, and however many watches there are, a
// group's status is made at most ten times a second, and never without watches.
func TestManyReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := f.group("default", "web", 5000)
		for n := range 5000 {
			f.put(record(n+1, "default", "web", fleet.Running))
		}
		storm := func() (asked int) {
			f.locked(func() { f.asked = 0 })
			for n := range 5000 {
				id := record(n+1, "", "", "").ID
				f.locked(func() { f.health[id] = operators.Health{LastReportAt: time.Now()} })
				f.watches.Changed(web, id)
				if n%5 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(time.Second)
			f.locked(func() { asked = f.asked })
			return asked
		}
		if asked := storm(); asked != 0 {
			t.Errorf("there is no watcher, and it was asked %d times", asked)
		}
		f.locked(func() { clear(f.health) })
		w := f.watchGroups("default")
		for range 10 {
			f.watchGroups("prod")
		}
		synctest.Wait()
		if asked := storm(); asked == 0 || asked > 25 {
			t.Errorf("asked %d times in a second", asked)
		}
		events := w.take()
		if last := events[len(events)-1].GetGroup(); last.GetActualSize() != 5000 {
			t.Errorf("the last word is %v", last)
		}
	})
}
