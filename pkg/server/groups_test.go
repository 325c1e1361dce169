package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

func ptr[T any](v T) *T { return &v }

func (p *process) upsert(req *nstancev1.UpsertGroupRequest) (*nstancev1.GroupStatus, error) {
	resp, err := p.operator("default").UpsertGroup(within(p.t), req)
	return resp.GetGroup(), err
}

// running starts a server with its agents and waits until group web has two.
func running(t *testing.T, edits ...func(*site)) (*site, *process) {
	t.Helper()
	s := newSite(t, edits...)
	p := s.start()
	s.populate(p)
	p.awaitSize("web", 2)
	return s, p
}

// TestUpsertSize: only a static group's size changes, durably.
func TestUpsertSize(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		before, err := p.group("web")
		if err != nil {
			t.Fatal(err)
		}
		after, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(4))})
		if err != nil {
			t.Fatal(err)
		}
		if after.GetSize() != 4 || !after.GetIsStatic() || after.GetTemplate() != "knd" || after.GetEtag() == before.GetEtag() ||
			after.GetVars().GetFields()["n"].GetNumberValue() != 1 || after.GetSubnetPool() != "workers" {
			t.Errorf("answered %v", after)
		}
		if text := s.get(webAt); !strings.Contains(text, `"size":4`) {
			t.Errorf("stored: %s", text)
		}
		p.awaitSize("web", 4)

		// Repeating it changes nothing.
		again, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(4))})
		if err != nil || again.GetEtag() != after.GetEtag() {
			t.Errorf("the same again: %v, etag %s after %s", err, again.GetEtag(), after.GetEtag())
		}

		// Another server, with only the bucket, has it too.
		p.ends()
		q := s.successor()
		q.awaitSize("web", 4)
		if n := len(s.living()); n != 4 {
			t.Errorf("%d machines live", n)
		}
	})
}

// TestUpsertRemove: exactly the named instances are removed.
func TestUpsertRemove(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		ids := s.living()
		newest := string(ids[1]) // without remove, the oldest would leave
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1)), Remove: []string{newest}}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 1)
		if have := s.living(); !slices.Equal(have, ids[:1]) {
			t.Errorf("%v live, want %v", have, ids[:1])
		}
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1)), Remove: []string{newest}}); err != nil {
			t.Errorf("the same again: %v", err)
		}
		p.awaitSize("web", 1)

		_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Remove: []string{string(ids[0])}})
		if refused(t, err, codes.InvalidArgument); !slices.Equal(fields(err), []string{"size"}) {
			t.Errorf("remove without size: %v", fields(err))
		}
		_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(0)), Remove: []string{"x"}})
		if refused(t, err, codes.InvalidArgument); !slices.Equal(fields(err), []string{"remove"}) {
			t.Errorf("remove garbage: %v", fields(err))
		}
		if g, err := p.group("web"); err != nil || g.GetSize() != 1 {
			t.Errorf("refusals changed the group: %v, %v", g, err)
		}
	})
}

// TestUpsertRefusals: each invalid field is named, and nothing changes.
func TestUpsertRefusals(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		for name, c := range map[string]struct {
			req   *nstancev1.UpsertGroupRequest
			code  codes.Code
			field string
			says  string
		}{
			"negative size": {req: &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(-1))}, code: codes.InvalidArgument,
				field: "size", says: "-1"},
			"a billion": {req: &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1e9))}, code: codes.InvalidArgument,
				field: "size", says: "1000000000"},
			"no name": {req: &nstancev1.UpsertGroupRequest{Size: ptr(int32(1))}, code: codes.InvalidArgument, field: "key"},
			"a bad name": {req: &nstancev1.UpsertGroupRequest{Key: "Web!", Size: ptr(int32(1))}, code: codes.InvalidArgument,
				field: "key", says: "Web!"},
			"no such group": {req: &nstancev1.UpsertGroupRequest{Key: "wbe", Size: ptr(int32(1))}, code: codes.NotFound, says: "wbe"},
			"no such template": {req: &nstancev1.UpsertGroupRequest{Key: "new", Template: ptr("kdn"), Size: ptr(int32(1))},
				code: codes.InvalidArgument, field: "template", says: "kdn"},
			"a closed pool": {req: &nstancev1.UpsertGroupRequest{Key: "new", Template: ptr("big"), Size: ptr(int32(1))},
				code: codes.InvalidArgument, field: "subnet_pool", says: "closed"},
			"static group's template": {req: &nstancev1.UpsertGroupRequest{Key: "web", Template: ptr("big")}, code: codes.FailedPrecondition,
				says: "template"},
			"static group's pool": {req: &nstancev1.UpsertGroupRequest{Key: "web", SubnetPool: ptr("closed")}, code: codes.FailedPrecondition,
				says: "subnet_pool"},
		} {
			_, err := p.upsert(c.req)
			if status.Code(err) != c.code || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%s: %v, want %s with %q", name, err, c.code, c.says)
			}
			if c.field != "" && !slices.Equal(fields(err), []string{c.field}) {
				t.Errorf("%s: violations of %v, want %s", name, rpc.Violations(err), c.field)
			}
		}
		huge := map[string]any{}
		for i := range 100 {
			huge[fmt.Sprintf("v%d", i)] = strings.Repeat("x", 100<<10)
		}
		vars, err := structpb.NewStruct(huge)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Vars: vars}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("10 MB of vars: %.200v", err)
		}
		// A refusal because the group does not exist writes only a tombstone.
		for _, key := range s.keys("groups/" + shardID + "/") {
			if text := s.get(key); !strings.Contains(text, `"deleted_at"`) {
				t.Errorf("refusals wrote %s: %s", key, text)
			}
		}
	})
}

// TestDynamicGroup creates a group, changes it, deletes it, and recreates it.
func TestDynamicGroup(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		vars, err := structpb.NewStruct(map[string]any{"role": "batch", "n": 7})
		if err != nil {
			t.Fatal(err)
		}
		g, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "batch", Template: ptr("knd"), Size: ptr(int32(2)), InstanceType: ptr("large"),
			Vars: vars})
		if err != nil {
			t.Fatal(err)
		}
		if g.GetIsStatic() || g.GetInstanceType() != "large" || g.GetVars().GetFields()["n"].GetNumberValue() != 7 {
			t.Errorf("answered %v", g)
		}
		p.awaitSize("batch", 2)
		if g, err = p.group("batch"); err != nil || len(g.GetInstances()) != 2 {
			t.Errorf("group is %v, %v", g, err)
		}

		// Deleting is idempotent while the group empties; then the group is gone.
		op := p.operator("default")
		s.world.Outage(provider.ErrThrottled)
		for range 2 {
			if _, err := op.DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "batch"}); err != nil {
				t.Fatal(err)
			}
		}
		_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "batch", Size: ptr(int32(3))})
		refused(t, err, codes.FailedPrecondition, "being deleted")
		if g, err := p.group("batch"); err != nil || g.GetSize() != 0 || condition(g, "Removed").GetStatus() != "True" {
			t.Errorf("while it empties: %v, %v", g, err)
		}
		s.world.Outage(nil)
		eventually(t, "the group is gone", func() error {
			if g, err := p.group("batch"); err == nil {
				return fmt.Errorf("it is %v", g)
			}
			return nil
		})
		if n := len(s.living()); n != 2 {
			t.Errorf("%d machines live", n)
		}
		_, err = op.DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "batch"})
		refused(t, err, codes.NotFound, "batch")
		_, err = op.DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "web"})
		refused(t, err, codes.FailedPrecondition, "static config")
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "batch", Template: ptr("knd"), Size: ptr(int32(1))}); err != nil {
			t.Errorf("made anew: %v", err)
		}
		p.awaitSize("batch", 1)
	})
}

// TestListGroupsNumbers: actual counts instances that run, have reported and stay.
func TestListGroupsNumbers(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		s.awaitMachine()
		expect := func(what string, actual, pending int32) {
			t.Helper()
			eventually(t, what, func() error {
				g, err := p.group("web")
				if err != nil {
					return err
				}
				if g.GetActualSize() != actual || g.GetPendingSize() != pending || g.GetDrainingSize() != 0 {
					return fmt.Errorf("group is %v", g)
				}
				return nil
			})
		}
		expect("machines that have not registered are pending", 0, 2)
		var machines []*machine
		for _, id := range s.living() {
			m, err := p.register(id)
			if err != nil {
				t.Fatal(err)
			}
			machines = append(machines, m)
		}
		expect("registered ones that have not reported are pending", 0, 2)
		if g, err := p.group("web"); err != nil || condition(g, "Ready").GetStatus() != "Unknown" {
			t.Errorf("ready too early: %v, %v", g, err)
		}
		if err := machines[0].report(p); err != nil {
			t.Fatal(err)
		}
		expect("the first report counts", 1, 1)
		if err := machines[1].report(p); err != nil {
			t.Fatal(err)
		}
		expect("both have reported", 2, 0)
		if g, err := p.group("web"); err != nil || condition(g, "Ready").GetStatus() != "True" {
			t.Errorf("not ready: %v, %v", g, err)
		}

		// Without a provider no instance can be deleted, so leaving ones stay and count as
		// pending.
		s.world.Outage(provider.ErrThrottled)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1)),
			Remove: []string{string(machines[0].id)}}); err != nil {
			t.Fatal(err)
		}
		expect("one is leaving", 1, 1)
		s.world.Outage(nil)
		expect("one has left", 1, 0)
	})
}

func condition(g *nstancev1.GroupStatus, name string) *nstancev1.Condition {
	for _, c := range g.GetConditions() {
		if c.GetType() == name {
			return c
		}
	}
	return nil
}

// TestGroupTrouble: a problem is shown while it lasts.
func TestGroupTrouble(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: fmt.Errorf("quota of 2 is used up: %w", provider.ErrQuota)})
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the group says what is wrong", func() error {
			g, err := p.group("web")
			if err != nil {
				return err
			}
			if c := condition(g, "Degraded"); c.GetStatus() != "True" || c.GetReason() != "QuotaUsedUp" ||
				!strings.Contains(c.GetMessage(), "quota of 2") {
				return fmt.Errorf("it says %v", g.GetConditions())
			}
			return nil
		})
		p.awaitSize("web", 3)
		if g, err := p.group("web"); err != nil || condition(g, "Degraded") != nil || condition(g, "Ready").GetStatus() != "True" {
			t.Errorf("afterwards: %v, %v", g, err)
		}
	})
}

// TestUpsertLostReplies loses the store's reply to the write of the groups, once after
// applying it and once without.
func TestUpsertLostReplies(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{"applied": objecttest.ReplyLost, "not applied": objecttest.Dropped} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t)
			struck := 0
			s.store.Set(func(r objecttest.Request) objecttest.Outcome {
				if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "groups/") && struck == 0 {
					struck++
					return objecttest.Outcome{Fault: fault}
				}
				return objecttest.Outcome{}
			})
			if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
				t.Error(err)
			}
			p.awaitSize("web", 3)
		}))
	}
}

// TestAnotherHandInTheGroups: records are edited externally. The next change of a group is
// applied to the edited record, and other edits are found by a listing.
func TestAnotherHandInTheGroups(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.put(webAt, `{ "epoch": 0, "rev": 9000000, "writer": "by hand", "vars": { "by": "hand" }, "new": 1 }`)
		s.put(groupAt("default", "mine"), `{ "template": "knd", "size": 1 } // by hand`)
		s.put(groupAt("default", "broken"), `{ "template": "nope" }`)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 1)
		p.idle()
		p.awaitSize("mine", 1)
		g, err := p.group("broken")
		if err != nil || !strings.Contains(condition(g, "Disabled").GetMessage(), "nope") {
			t.Errorf("a bad entry disables its group and says so: %v, %v", g, err)
		}
		text := s.get(webAt)
		for _, kept := range []string{`"rev":9000001`, `"by":"hand"`, `"new":1`} {
			if !strings.Contains(text, kept) {
				t.Errorf("stored, without %s: %s", kept, text)
			}
		}
	})
}

// TestWriteWhoseOutcomeIsUnknown: the caller gives up on a change that landed. It takes effect
// all the same, in this term.
func TestWriteWhoseOutcomeIsUnknown(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		var written sync.Once
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if strings.HasPrefix(r.Key, "groups/") {
				if r.Verb == object.VerbPut { // the caller waits until the outcome is unknown
					written.Do(func() { time.AfterFunc(300*time.Millisecond, cancel) })
				}
				return objecttest.Outcome{Fault: objecttest.ReplyLost}
			}
			return objecttest.Outcome{}
		})
		_, err := p.operator("default").UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))})
		if code := status.Code(err); code != codes.Canceled && code != codes.Unavailable {
			t.Fatalf("answered %v", err)
		}
		s.store.Set(nil)
		p.awaitSize("web", 1)
	})
}

// TestInstances lists instances and shows one.
func TestInstances(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		op := p.operator("default")
		resp, err := op.ListInstances(within(t), &nstancev1.ListInstancesRequest{})
		if err != nil || len(resp.GetInstances()) != 2 {
			t.Fatalf("instances: %v, %v", resp, err)
		}
		first := resp.GetInstances()[0]
		if first.GetId() != string(s.living()[0]) || first.GetGroup() != "web" || !first.GetConnected() || first.GetProviderId() == "" ||
			first.GetProviderState() != "running" || first.GetSubnet() != "a" || first.GetLastReportAt() == nil || first.GetOnDemand() {
			t.Errorf("the first is %v", first)
		}
		id := s.living()[0]
		s.world.Kill(id)
		p.awaitPhase(id, nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
		p.awaitSize("web", 2)
		if resp, err = op.ListInstances(within(t), &nstancev1.ListInstancesRequest{Group: "web"}); err != nil || len(resp.GetInstances()) != 2 {
			t.Errorf("without tombstones: %v, %v", resp, err)
		}
		if resp, err = op.ListInstances(within(t), &nstancev1.ListInstancesRequest{IncludeDeleted: true}); err != nil ||
			len(resp.GetInstances()) != 3 {
			t.Errorf("with tombstones: %v, %v", resp, err)
		}
		_, err = op.ListInstances(within(t), &nstancev1.ListInstancesRequest{Group: "No"})
		refused(t, err, codes.InvalidArgument)
		_, err = op.GetInstanceStatus(within(t), &nstancev1.GetInstanceStatusRequest{Id: "knd"})
		if refused(t, err, codes.InvalidArgument, "knd"); !slices.Equal(fields(err), []string{"id"}) {
			t.Errorf("violations of %v", fields(err))
		}
		if _, err := p.instance(newID(t, "knd")); status.Code(err) != codes.NotFound {
			t.Errorf("an absent instance: %v", err)
		}
	})
}

// TestFailingCreatesAreTold: a group whose creates fail reports it in its status and events;
// once the provider accepts them again, that ends and is reported.
func TestFailingCreatesAreTold(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		errs, groups := p.watchErrors("default"), p.watchGroups("default")
		s.noRoom()
		p.scale(4)
		isFailing := func(g *nstancev1.GroupStatus) bool {
			return slices.ContainsFunc(g.GetConditions(), func(c *nstancev1.Condition) bool {
				return c.GetType() == "CreatesFailing" && c.GetStatus() == "True" && strings.Contains(c.GetMessage(), "out of them")
			})
		}
		errs.next("creates fail", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == "CreatesFailing" && e.GetGroup() == "web" && !e.GetOver()
		})
		groups.next("creates fail", func(e *nstancev1.WatchGroupsResponse) bool { return isFailing(e.GetGroup()) })
		if g := s.mustGroup(p, "web"); !isFailing(g) {
			t.Errorf("the group is %v", g)
		}
		groups.quiet()
		time.Sleep(time.Hour)                       // and many tries
		if more := groups.quiet(); len(more) > 60 { // each may be seen pending first
			t.Errorf("in an hour %d more events: %v", len(more), more)
		}
		s.world.Mend()
		time.Sleep(10 * time.Minute)
		errs.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == "CreatesFailing" && e.GetGroup() == "web" && e.GetOver()
		})
		groups.next("it is over", func(e *nstancev1.WatchGroupsResponse) bool {
			return e.GetGroup().GetActualSize() == 4 && !isFailing(e.GetGroup())
		})
	})
}
