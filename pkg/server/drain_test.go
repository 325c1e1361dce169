package server_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

func (p *process) ack(id fleet.InstanceID) error {
	_, err := p.operator("default").AcknowledgeDrained(within(p.t), &nstancev1.AcknowledgeDrainedRequest{Id: string(id)})
	return err
}

// runningWithDrains is running with a drain timeout longer than any test.
func runningWithDrains(t *testing.T) (*site, *process) {
	t.Helper()
	return running(t, replaced(`"default_drain_timeout": "0s"`, `"default_drain_timeout": "1h"`))
}

// TestAcknowledgeDrained deletes an instance at once instead of in an hour. Repeated and early
// calls are harmless.
func TestAcknowledgeDrained(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningWithDrains(t)
		ids := s.living()
		oldest := ids[0]
		refused(t, p.ack(oldest), codes.FailedPrecondition, "instance "+string(oldest)+" is running, not draining")
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(oldest, isDraining)
		if i, err := p.instance(oldest); err != nil || time.Until(i.GetDrain().GetDeleteAt().AsTime()) < 50*time.Minute ||
			i.GetDrain().GetAckedAt() != nil {
			t.Errorf("drains %v, %v", i, err)
		}
		if err := p.ack(oldest); err != nil {
			t.Fatal(err)
		}
		for _, i := range s.records() { // durable once acknowledged
			if i.ID == oldest && (i.Drain == nil || i.Drain.AckedAt == nil) {
				t.Errorf("the record says %+v", i)
			}
		}
		p.awaitPhase(oldest, isDeleted)
		if err := p.ack(oldest); err != nil {
			t.Errorf("again: %v", err)
		}
		if lines := p.lines(`changes.drain_acknowledged="false -> true"`); len(lines) != 1 {
			t.Errorf("two acknowledgements left the lines %v", lines)
		}
		if have := s.living(); !slices.Equal(have, ids[1:]) {
			t.Errorf("%v live, want %v", have, ids[1:])
		}
		absent := newID(t, "knd")
		refused(t, p.ack(absent), codes.NotFound, "no such instance "+string(absent))
		refused(t, p.ack("x"), codes.InvalidArgument, "id")
	})
}

// TestFirstAcknowledgementCounts: concurrent acknowledgements write only once, and a lost
// reply is resolved.
func TestFirstAcknowledgementCounts(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningWithDrains(t)
		oldest := s.living()[0]
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(oldest, isDraining)
		record := func() fleet.Instance {
			all := s.records()
			return all[slices.IndexFunc(all, func(i fleet.Instance) bool { return i.ID == oldest })]
		}
		before := record().Rev
		first := true
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb != object.VerbPut || !strings.HasPrefix(r.Key, "instance/") {
				return objecttest.Outcome{}
			}
			o := objecttest.Outcome{Latency: 50 * time.Millisecond} // so that all the others wait behind the first
			if first {
				first, o.Fault = false, objecttest.ReplyLost
			}
			return o
		})
		var all sync.WaitGroup
		for range 8 {
			client, ctx := p.operator("default"), within(t)
			all.Go(func() {
				if _, err := client.AcknowledgeDrained(ctx, &nstancev1.AcknowledgeDrainedRequest{Id: string(oldest)}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		p.awaitPhase(oldest, isDeleted)
		if r := record(); r.Rev != before+2 || r.Drain == nil || r.Drain.AckedAt == nil {
			t.Errorf("rev %d after %d, want one write for the acknowledgement with deleting, and one for deleted: %+v", r.Rev, before, r)
		}
	})
}

// TestDrainSurvivesItsLeader: the next leader keeps the drain deadline, and accepts the
// acknowledgement.
func TestDrainSurvivesItsLeader(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningWithDrains(t)
		id := p.created("k")
		p.awaitPhase(id, isRunning)
		if err := p.deleteByKey("k"); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(id, isDraining)
		before, err := p.instance(id)
		if err != nil {
			t.Fatal(err)
		}
		p.ends()
		q := s.successor()
		q.awaitSize("web", 2)
		after, err := q.instance(id)
		if err != nil || after.GetPhase() != isDraining ||
			!after.GetDrain().GetDeleteAt().AsTime().Equal(before.GetDrain().GetDeleteAt().AsTime()) {
			t.Errorf("drained %v, and now %v, %v", before.GetDrain(), after, err)
		}
		if err := q.ack(id); err != nil {
			t.Fatal(err)
		}
		q.awaitPhase(id, isDeleted)
	})
}

// TestWatchersHearOfAcknowledgements: other watches receive them.
func TestWatchersHearOfAcknowledgements(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningWithDrains(t)
		oldest := s.living()[0]
		watch := p.watchInstances("default")
		watch.next("the snapshot's end", endOfInstances)
		if err := p.delete(oldest); err != nil { // replaced first, then drained
			t.Fatal(err)
		}
		drains, _ := watch.next("it drains", func(m *nstancev1.WatchInstancesResponse) bool { return m.GetInstance().GetPhase() == isDraining })
		if n := len(s.living()); n != 3 || drains.GetInstance().GetId() != string(oldest) {
			t.Errorf("%d live while one of three drains: %v", n, drains)
		}
		if err := p.ack(oldest); err != nil {
			t.Fatal(err)
		}
		watch.next("it is acknowledged", func(m *nstancev1.WatchInstancesResponse) bool {
			return m.GetInstance().GetId() == string(oldest) && m.GetInstance().GetDrain().GetAckedAt() != nil
		})
		p.awaitPhase(oldest, isDeleted)
		p.awaitSize("web", 2)
	})
}

// TestNoDrainTimeout: a drain timeout of 0 deletes at once.
func TestNoDrainTimeout(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		id := p.created("k")
		p.awaitPhase(id, isRunning)
		if err := p.delete(id); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(id, isDeleted)
		if i, err := p.instance(id); err != nil || i.GetDrain() != nil {
			t.Errorf("%v, %v", i, err)
		}
		if n := len(s.living()); n != 2 {
			t.Errorf("%d live", n)
		}
	})
}
