package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (p *process) watchEvents(tenant string, req *nstancev1.WatchEventsRequest) *watched[nstancev1.WatchEventsResponse] {
	p.t.Helper()
	stream, err := p.operator(tenant).WatchEvents(p.t.Context(), req)
	return follow(p.t, stream, err)
}

// events lists all events of tenant default that a request selects.
func (p *process) events(req *nstancev1.ListEventsRequest) (all []*nstancev1.Event) {
	p.t.Helper()
	for {
		resp, err := p.viewer().ListEvents(within(p.t), req)
		if err != nil {
			p.t.Fatal(err)
		}
		all = append(all, resp.GetEvents()...)
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return all
		}
	}
}

// history returns the kinds and reasons of the events of an instance, and their messages.
func (p *process) history(id fleet.InstanceID) (told []string, messages string) {
	p.t.Helper()
	for _, e := range p.events(&nstancev1.ListEventsRequest{InstanceId: string(id), PageSize: 1}) {
		told = append(told, e.GetKind()+" "+e.GetReason())
		messages += e.GetMessage() + "\n"
	}
	return told, messages
}

// TestEvents: why a machine was replaced is told, also by the next leader, and when its record is
// gone.
func TestEvents(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		victim := s.living()[0]
		s.world.Explain(victim, "out of memory")
		s.world.Kill(victim)
		eventually(t, "it is replaced", func() error {
			if ids := s.living(); len(ids) != 2 || slices.Contains(ids, victim) {
				return fmt.Errorf("%v live", ids)
			}
			return nil
		})
		p.awaitSize("web", 2)
		time.Sleep(10 * time.Second)
		want := []string{"create scale-up", "delete vm-down", "deleted vm-down", "replace vm-down"}
		check := func(p *process) {
			t.Helper()
			told, messages := p.history(victim)
			slices.Sort(told) // the replacement and the removal are concurrent
			if !slices.Equal(told, want) || strings.Count(messages, "its machine has stopped: out of memory") != 2 {
				t.Errorf("told %q:\n%s", told, messages)
			}
		}
		check(p)
		p.ends()
		q := s.successor()
		check(q)
		time.Sleep(45 * time.Minute) // the tombstone is removed
		if _, err := q.viewer().GetInstanceStatus(within(t), &nstancev1.GetInstanceStatusRequest{Id: string(victim)}); err == nil {
			t.Error("its record is still there")
		}
		check(q)
	})
}

// TestEventsOfChanges: who changed what is told, and which decisions follow from that.
func TestEventsOfChanges(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := runningWithDrains(t)
		oldest := s.living()[0]
		// Otherwise the drain may be durable before the call that causes it has ended.
		s.store.Set(objecttest.Always(objecttest.Outcome{Latency: 10 * time.Millisecond}))
		watch := p.watchEvents("default", &nstancev1.WatchEventsRequest{Group: "web"})
		watch.next("the snapshot's end", endOfEvents)
		o, pair := s.operator("default")
		if _, err := p.as(pair).UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		by := "spiffe://" + clusterID + "/default/operator/" + string(o.ID)
		m, _ := watch.next("it was changed", func(m *nstancev1.WatchEventsResponse) bool { return m.GetEvent().GetKind() == "change" })
		e := m.GetEvent()
		if e.GetActor() != by || e.GetReason() != "upsert-group" || e.GetGroup() != "web" ||
			e.GetMessage() != "group web was changed: size 2 -> 1" ||
			!slices.ContainsFunc(e.GetChanges(), func(c *nstancev1.EventChange) bool { return c.GetName() == "size" && c.GetFrom() == "2" }) {
			t.Errorf("%v", e)
		}
		m, _ = watch.next("it drains", func(m *nstancev1.WatchEventsResponse) bool { return m.GetEvent().GetKind() == "drain" })
		text := m.GetEvent().GetMessage()
		if m.GetEvent().GetInstanceId() != string(oldest) || m.GetEvent().GetActor() != "rule:scale" ||
			!strings.Contains(text, "this one is the oldest") ||
			!strings.Contains(text, "; group web was changed: size 2 -> 1 at ") || !strings.HasSuffix(text, " by "+by) {
			t.Errorf("%v", m)
		}
		if err := p.ack(oldest); err != nil {
			t.Fatal(err)
		}
		told := map[string]bool{} // the step is stored with the call, whose event comes when it has ended
		watch.next("the drain is acknowledged, and it is deleted", func(m *nstancev1.WatchEventsResponse) bool {
			if e := m.GetEvent(); e.GetInstanceId() == string(oldest) {
				told[e.GetReason()] = true
				told[e.GetKind()] = strings.HasPrefix(e.GetMessage(), "its drain was acknowledged at ")
			}
			return told["acknowledge-drained"] && told["delete"]
		})
	})
}

func endOfEvents(m *nstancev1.WatchEventsResponse) bool { return m.GetType() == snapshotEvent }

// TestWatchEventsResumes: a watch goes on with the next leader where it ended.
func TestWatchEventsResumes(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		watch := p.watchEvents("default", &nstancev1.WatchEventsRequest{})
		_, before := watch.next("the snapshot's end", endOfEvents)
		last := before[len(before)-1].GetEvent().GetId()
		s.world.Kill(s.living()[0])
		eventually(t, "it is replaced", func() error {
			if n := len(s.living()); n != 2 {
				return fmt.Errorf("%d live", n)
			}
			return nil
		})
		p.awaitSize("web", 2)
		p.ends()
		if err := watch.ended(); rpc.Revoked(err) {
			t.Error(err)
		}
		q := s.successor()
		_, since := q.watchEvents("default", &nstancev1.WatchEventsRequest{AfterId: last}).next("the snapshot's end", endOfEvents)
		var kinds []string
		for _, m := range since {
			kinds = append(kinds, m.GetEvent().GetKind())
		}
		slices.Sort(kinds)
		if want := []string{"delete", "deleted", "replace", "takeover"}; !slices.Equal(kinds, want) {
			t.Errorf("since then %q, want %q", kinds, want)
		}
	})
}

// TestEventRequests: what a request selects, and what is not valid.
func TestEventRequests(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		time.Sleep(time.Minute)
		before := timestamppb.Now()
		time.Sleep(time.Second)
		p.scale(3)
		p.awaitSize("web", 3)
		var kinds []string
		for _, e := range p.events(&nstancev1.ListEventsRequest{Since: before}) {
			kinds = append(kinds, e.GetKind())
		}
		if slices.Sort(kinds); !slices.Equal(kinds, []string{"change", "create"}) {
			t.Errorf("since the change: %v", kinds)
		}
		if all := p.events(&nstancev1.ListEventsRequest{Group: "none"}); len(all) != 0 {
			t.Errorf("of no group: %v", all)
		}
		if all := p.events(&nstancev1.ListEventsRequest{InstanceId: string(newID(t, "knd"))}); len(all) != 0 {
			t.Errorf("of no instance: %v", all)
		}
		s.store.Set(objecttest.Always(objecttest.Outcome{}))
		for field, req := range map[string]*nstancev1.ListEventsRequest{
			"page_size": {PageSize: -1}, "page_token": {PageToken: "7"}, "group": {Group: "No"}, "instance_id": {InstanceId: "no"},
			"since": {Since: &timestamppb.Timestamp{Nanos: -1}},
		} {
			_, err := p.viewer().ListEvents(within(t), req)
			refused(t, err, codes.InvalidArgument)
			if names := fields(err); !slices.Equal(names, []string{field}) {
				t.Errorf("%s: the error names %q", field, names)
			}
		}
		stream, err := p.viewer().WatchEvents(t.Context(), &nstancev1.WatchEventsRequest{AfterId: "7"})
		if err == nil {
			_, err = stream.Recv()
		}
		refused(t, err, codes.InvalidArgument, "after_id")
		resp, err := p.viewer().ListEvents(within(t), &nstancev1.ListEventsRequest{PageSize: operators.MaxEventPage + 1})
		if err != nil || resp.GetEarlierMissing() {
			t.Errorf("%v, %v", resp, err)
		}
	})
}

// TestEventsWithoutStorage: the leader acts although the events of earlier terms can't be read, and
// says that they are missing.
func TestEventsWithoutStorage(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.ends()
		s.store.Set(func(r objecttest.Request) (o objecttest.Outcome) {
			if strings.HasPrefix(r.Key, "events/") {
				o.Fault = objecttest.Hung
			}
			return o
		})
		q := s.successor()
		q.awaitSize("web", 2)
		resp, err := q.viewer().ListEvents(within(t), &nstancev1.ListEventsRequest{})
		if err != nil || !resp.GetEarlierMissing() || len(resp.GetEvents()) != 1 {
			t.Errorf("%v, %v", resp, err)
		}
		began := time.Now()
		q.ends()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the hand-over took %s", took)
		}
	})
}
