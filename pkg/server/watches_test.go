package server_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/operators"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	upsertEvent   = nstancev1.EventType_EVENT_TYPE_UPSERT
	deleteEvent   = nstancev1.EventType_EVENT_TYPE_DELETE
	snapshotEvent = nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END
)

// watched is the reader of one watch stream.
type watched[T any] struct {
	t      *testing.T
	events chan *T
	err    error // set when events is closed
}

// follow reads a stream until the test ends. The stream is open when it returns.
func follow[T any](t *testing.T, stream grpc.ServerStreamingClient[T], err error) *watched[T] {
	t.Helper()
	if err == nil {
		_, err = stream.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &watched[T]{t: t, events: make(chan *T, 1000)}
	go func() {
		defer close(w.events)
		for {
			m, err := stream.Recv()
			if err != nil {
				w.err = err
				return
			}
			w.events <- m
		}
	}()
	return w
}

// next waits for the first wanted event, and returns it with all those before it.
func (w *watched[T]) next(what string, wanted func(*T) bool) (found *T, before []*T) {
	w.t.Helper()
	patient := time.After(patience)
	for {
		select {
		case m, ok := <-w.events:
			switch {
			case !ok:
				w.t.Fatalf("the watch ended (%v) before %s", w.err, what)
			case wanted(m):
				return m, before
			}
			before = append(before, m)
		case <-patient:
			w.t.Fatalf("no event says %s, only %v", what, before)
		}
	}
}

// ended waits for the end of the stream.
func (w *watched[T]) ended() error {
	w.t.Helper()
	patient := time.After(patience)
	for {
		select {
		case _, ok := <-w.events:
			if !ok {
				return w.err
			}
		case <-patient:
			w.t.Fatal("the watch does not end")
		}
	}
}

// quiet returns the events until none arrives for a moment. Pending events take a millisecond.
func (w *watched[T]) quiet() (events []*T) {
	for {
		select {
		case m, ok := <-w.events:
			if !ok {
				w.t.Fatalf("the watch ended: %v", w.err)
			}
			events = append(events, m)
		case <-time.After(50 * time.Millisecond):
			return events
		}
	}
}

func (p *process) watchGroups(tenant string) *watched[nstancev1.WatchGroupsResponse] {
	p.t.Helper()
	stream, err := p.operator(tenant).WatchGroups(p.t.Context(), &nstancev1.WatchGroupsRequest{})
	return follow(p.t, stream, err)
}

func (p *process) watchInstances(tenant string) *watched[nstancev1.WatchInstancesResponse] {
	p.t.Helper()
	stream, err := p.operator(tenant).WatchInstances(p.t.Context(), &nstancev1.WatchInstancesRequest{})
	return follow(p.t, stream, err)
}

func (p *process) watchErrors(tenant string) *watched[nstancev1.WatchErrorsResponse] {
	p.t.Helper()
	stream, err := p.operator(tenant).WatchErrors(p.t.Context(), &nstancev1.WatchErrorsRequest{})
	return follow(p.t, stream, err)
}

// groupIs matches the event that a group has a size.
func groupIs(key string, size int32) func(*nstancev1.WatchGroupsResponse) bool {
	return func(m *nstancev1.WatchGroupsResponse) bool {
		g := m.GetGroup()
		return m.GetType() == upsertEvent && m.GetKey() == key && g.GetSize() == size && g.GetActualSize() == size && g.GetPendingSize() == 0
	}
}

func endOfGroups(m *nstancev1.WatchGroupsResponse) bool { return m.GetType() == snapshotEvent }

// instanceIs matches the event that an instance has a phase.
func instanceIs(id fleet.InstanceID, phase nstancev1.InstancePhase) func(*nstancev1.WatchInstancesResponse) bool {
	return func(m *nstancev1.WatchInstancesResponse) bool {
		return m.GetType() == upsertEvent && m.GetInstance().GetId() == string(id) && m.GetInstance().GetPhase() == phase
	}
}

func endOfInstances(m *nstancev1.WatchInstancesResponse) bool { return m.GetType() == snapshotEvent }

// TestWatchGroups follows a group from its definition to its deletion, and compares it with
// ListGroups.
func TestWatchGroups(t *testing.T) {
	simulated(t, func(t *testing.T) {
		_, p := running(t)
		w := p.watchGroups("default")
		_, snapshot := w.next("the snapshot's end", endOfGroups)
		if len(snapshot) != 1 || !groupIs("web", 2)(snapshot[0]) {
			t.Fatalf("snapshot %v", snapshot)
		}
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		three, _ := w.next("web has three", groupIs("web", 3))
		if listed, err := p.group("web"); err != nil || listed.GetEtag() != three.GetGroup().GetEtag() ||
			len(three.GetGroup().GetInstances()) != 3 {
			t.Errorf("told %v, listed %v, %v", three, listed, err)
		}
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "extra", Template: ptr("knd"), Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		w.next("extra has one", groupIs("extra", 1))
		if _, err := p.operator("default").DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "extra"}); err != nil {
			t.Fatal(err)
		}
		gone := func(m *nstancev1.WatchGroupsResponse) bool {
			return m.GetType() == deleteEvent && m.GetKey() == "extra"
		}
		w.next("extra is gone", gone)
	})
}

// TestWatchInstances follows an instance through its drain to its end. A watch that starts in
// between gets it in the snapshot, also from another leader.
func TestWatchInstances(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, with("GROUPS", `"default": { "web": { "template": "knd", "size": 2, "drain_timeout": "1h" } }`))
		w := p.watchInstances("default")
		if _, before := w.next("the snapshot's end", endOfInstances); len(before) > 0 {
			t.Errorf("nothing drains, and the snapshot has %v", before)
		}
		id := s.living()[0]
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1)), Remove: []string{string(id)}}); err != nil {
			t.Fatal(err)
		}
		drains, _ := w.next("it drains", instanceIs(id, nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING))
		if d := drains.GetInstance().GetDrain(); d.GetReason() == "" || !d.GetDeleteAt().AsTime().After(time.Now()) {
			t.Errorf("told %v", drains)
		}
		late := p.watchInstances("default")
		if _, before := late.next("the snapshot's end", endOfInstances); len(before) != 1 || before[0].GetInstance().GetId() != string(id) {
			t.Errorf("the snapshot has %v", before)
		}

		p.ends()
		if err := w.ended(); status.Code(err) != codes.Unavailable {
			t.Errorf("the watch of a leader that went away ended with %v", err)
		}
		q := s.successor()
		next := q.watchInstances("default")
		if _, before := next.next("the snapshot's end", endOfInstances); len(before) != 1 || before[0].GetInstance().GetId() != string(id) {
			t.Errorf("the next leader's snapshot has %v", before)
		}
		s.world.Kill(id)
		s.agents.of(id).conn.Close()
		next.next("it is deleted", instanceIs(id, nstancev1.InstancePhase_INSTANCE_PHASE_DELETED))
	})
}

// TestWatchErrors: current problems come first, then new ones; the shard's problems are for
// tenant default, a group's for its own tenant.
func TestWatchErrors(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("GROUPS", `"default": { "web": { "template": "knd", "size": 1 } },
			"prod": { "web": { "template": "knd", "size": 1 } }`))
		s.world.Outage(errors.New("the cloud is on holiday"))
		p := s.start().awaitLeading()
		p.await("problem")
		says := func(text string) func(*nstancev1.WatchErrorsResponse) bool {
			return func(m *nstancev1.WatchErrorsResponse) bool { return strings.Contains(m.GetMessage(), text) }
		}
		mine, theirs := p.watchErrors("default"), p.watchErrors("prod")
		first, _ := mine.next("what lasts", says("on holiday"))
		if first.GetReason() != "ProviderError" || first.GetGroup() != "" || first.GetAt() == nil {
			t.Errorf("told %v", first)
		}
		s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: errors.New("the cloud is full")})
		s.world.Outage(nil)
		for name, w := range map[string]*watched[nstancev1.WatchErrorsResponse]{"default": mine, "prod": theirs} {
			m, before := w.next("no VM is made", says("is full"))
			id, err := fleet.ParseID(m.GetInstanceId())
			if err != nil || m.GetGroup() != "web" {
				t.Errorf("%s is told %v", name, m)
				continue
			}
			for _, r := range s.records() {
				if r.ID == id && r.Tenant != name {
					t.Errorf("%s is told of %s's: %v", name, r.Tenant, m)
				}
			}
			if name == "prod" && len(before) > 0 {
				t.Errorf("prod is told %v", before)
			}
		}
		later := p.watchErrors("prod")
		later.next("what lasts", says("is full"))
	})
}

// TestWatchInvalidConfig: a new watch of tenant default receives that config/ can't run.
func TestWatchInvalidConfig(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.put("config/"+shardID+".jsonc", strings.ReplaceAll(s.text(), `"template": "knd"`, `"template": "nosuch"`))
		p.ends()
		q := s.start(named("b")).awaitLeading()
		m, _ := q.watchErrors("default").next("the config is invalid", func(m *nstancev1.WatchErrorsResponse) bool {
			return m.GetReason() == "ConfigInvalid"
		})
		if !strings.Contains(m.GetMessage(), "groups.default.web.template") {
			t.Errorf("told %v", m)
		}
		if told := q.watchErrors("prod").quiet(); len(told) > 0 {
			t.Errorf("prod is told %v", told)
		}
	})
}

// TestWatchInvalidGroup: a dynamic group's problem is reported to its own tenant, until it is
// resolved.
func TestWatchInvalidGroup(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		prod := p.operator("prod")
		db := &nstancev1.UpsertGroupRequest{Key: "db", Template: ptr("knd"), Size: ptr(int32(0))}
		if _, err := prod.UpsertGroup(within(t), db); err != nil {
			t.Fatal(err)
		}
		p.ends()
		key := groupAt("prod", "db")
		good := s.get(key)
		s.put(key, strings.ReplaceAll(good, `"template":"knd"`, `"template":"nosuch"`))
		q := s.start(named("b")).awaitLeading()
		m, _ := q.watchErrors("prod").next("the group is invalid", func(m *nstancev1.WatchErrorsResponse) bool {
			return m.GetReason() == "GroupsInvalid"
		})
		if m.GetGroup() != "db" || !strings.Contains(m.GetMessage(), "nosuch") {
			t.Errorf("told %v", m)
		}
		groups := q.watchGroups("prod")
		disabled := func(m *nstancev1.WatchGroupsResponse) bool {
			return slices.ContainsFunc(m.GetGroup().GetConditions(), func(c *nstancev1.Condition) bool { return c.GetType() == "Disabled" })
		}
		groups.next("it is disabled", disabled)
		if told := q.watchErrors("default").quiet(); len(told) > 0 {
			t.Errorf("default is told %v", told)
		}
		if _, err := q.operator("prod").UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "db", Template: ptr("knd")}); err != nil {
			t.Fatal(err)
		}
		groups.next("it is mended", func(m *nstancev1.WatchGroupsResponse) bool { return m.GetKey() == "db" && !disabled(m) })
		if told := q.watchErrors("prod").quiet(); len(told) > 0 {
			t.Errorf("told %v of what is mended", told)
		}
	})
}

// TestWatchWithoutReading: a reader that does not read blocks neither others, nor the shard, nor
// the shutdown.
func TestWatchWithoutReading(t *testing.T) {
	simulated(t, func(t *testing.T) {
		_, p := running(t)
		var idle []grpc.ServerStreamingClient[nstancev1.WatchGroupsResponse]
		for range 3 {
			stream, err := p.operator("default").WatchGroups(t.Context(), &nstancev1.WatchGroupsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			idle = append(idle, stream)
		}
		w := p.watchGroups("default")
		for n := range 8 {
			vars, err := structpb.NewStruct(map[string]any{"n": n, "big": strings.Repeat("x", 60<<10)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Vars: vars}); err != nil {
				t.Fatal(err)
			}
			w.next(fmt.Sprint("web has n ", n), func(m *nstancev1.WatchGroupsResponse) bool {
				return m.GetGroup().GetVars().GetFields()["n"].GetNumberValue() == float64(n)
			})
		}
		p.ends()
		for _, stream := range idle {
			for {
				if _, err := stream.Recv(); err != nil {
					break
				}
			}
		}
	})
}

// TestTooManyWatches: an operator that opens too many watches gets an error, and others are
// unaffected.
func TestTooManyWatches(t *testing.T) {
	simulated(t, func(t *testing.T) {
		_, p := running(t)
		client := p.operator("default")
		for range operators.MaxWatchesPerOperator {
			stream, err := client.WatchGroups(t.Context(), &nstancev1.WatchGroupsRequest{})
			follow(t, stream, err)
		}
		stream, err := client.WatchGroups(t.Context(), &nstancev1.WatchGroupsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		refused(t, err, codes.ResourceExhausted, "16 watches open")
		p.watchGroups("default").next("the snapshot's end", endOfGroups)
	})
}
