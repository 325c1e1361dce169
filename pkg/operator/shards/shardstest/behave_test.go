package shardstest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// in runs a test with one shard, in simulated time.
func in(t *testing.T, test func(*testing.T, *shardstest.World, *shardstest.Shard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Much simulated time passes in these tests, and none waits for a poll.
		w := shardstest.New(t, func(c *shards.Config) { c.Poll = time.Hour }, "one")
		w.Run()
		w.Synced()
		test(t, w, w.Shard("one"))
	})
}

// phases returns abbreviated phases of a group's instances, by age.
func phases(s *shardstest.Shard, group string) string {
	synctest.Wait()
	var all []string
	for _, i := range s.Instances(group) {
		all = append(all, strings.ToLower(strings.TrimPrefix(i.GetPhase().String(), "INSTANCE_PHASE_")))
	}
	return strings.Join(all, " ")
}

func expect(t *testing.T, s *shardstest.Shard, group, want string) {
	t.Helper()
	if got := phases(s, group); got != want {
		t.Errorf("phases of group %s: %s, want %s", group, got, want)
	}
}

func code(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("answered %v, want %s", err, want)
	}
}

func TestScale(t *testing.T) {
	in(t, func(t *testing.T, w *shardstest.World, s *shardstest.Shard) {
		ctx := t.Context()
		up := func(r *nstancev1.UpsertGroupRequest) (*nstancev1.UpsertGroupResponse, error) {
			r.Key = "web"
			return w.Set.UpsertGroup(ctx, "one", r)
		}
		s.SetTiming(func(timing *shardstest.Timing) { timing.Create, timing.Boot = time.Second, time.Second })
		_, err := up(&nstancev1.UpsertGroupRequest{Template: proto.String("default"), Size: proto.Int32(3), IfEtag: proto.String("")})
		code(t, err, codes.OK)
		expect(t, s, "web", "pending pending pending")
		time.Sleep(2 * time.Second)
		expect(t, s, "web", "running running running")
		all := s.Instances("web")
		if i := all[0]; i.GetNodeProviderId() != "process:///"+i.GetId() || i.GetProviderId() != i.GetId() || i.GetRegisteredAt() == nil {
			t.Errorf("an instance that runs: %v", i)
		}
		if _, err := fleet.ParseID(all[0].GetId()); err != nil {
			t.Error(err)
		}
		// The oldest is removed first, but a named one before.
		_, err = up(&nstancev1.UpsertGroupRequest{Size: proto.Int32(1), Remove: []string{all[2].GetId()}})
		code(t, err, codes.OK)
		// One that is gone takes no other with it.
		resp, err := up(&nstancev1.UpsertGroupRequest{Size: proto.Int32(0), Remove: []string{"knd01h455vb4pex5vsknk084sn02q"}})
		code(t, err, codes.OK)
		if len(resp.GetAlreadyGone()) != 1 || resp.GetGroup().GetSize() != 1 {
			t.Errorf("already gone: %v, size %d", resp.GetAlreadyGone(), resp.GetGroup().GetSize())
		}
		expect(t, s, "web", "draining running draining")
		if g := s.Group("web"); g.GetActualSize() != 1 || g.GetDrainingSize() != 2 || len(g.GetInstances()) != 3 {
			t.Errorf("while it drains: %v", g)
		}
		code(t, w.Set.AcknowledgeDrained(ctx, "one", all[1].GetId()), codes.FailedPrecondition)
		code(t, w.Set.AcknowledgeDrained(ctx, "one", all[2].GetId()), codes.OK)
		code(t, w.Set.AcknowledgeDrained(ctx, "one", all[2].GetId()), codes.OK)
		expect(t, s, "web", "draining running deleted")
		time.Sleep(5 * time.Minute)
		expect(t, s, "web", "deleted running deleted")
		time.Sleep(30 * time.Minute)
		expect(t, s, "web", "running")
		_, err = up(&nstancev1.UpsertGroupRequest{Size: proto.Int32(2), IfEtag: proto.String(resp.GetGroup().GetEtag() + "0")})
		code(t, err, codes.Aborted)
		_, err = up(&nstancev1.UpsertGroupRequest{Size: proto.Int32(-1)})
		code(t, err, codes.InvalidArgument)
		_, err = up(&nstancev1.UpsertGroupRequest{Remove: []string{all[1].GetId()}})
		code(t, err, codes.InvalidArgument)
	})
}

func TestStaticAndDeletedGroups(t *testing.T) {
	in(t, func(t *testing.T, w *shardstest.World, s *shardstest.Shard) {
		ctx := t.Context()
		s.Static("web", 2, "default")
		request := &nstancev1.UpsertGroupRequest{Key: "web", Template: proto.String("other")}
		_, err := w.Set.UpsertGroup(ctx, "one", request)
		code(t, err, codes.FailedPrecondition)
		code(t, w.Set.DeleteGroup(ctx, "one", "web", ""), codes.FailedPrecondition)
		_, err = w.Set.UpsertGroup(ctx, "one", &nstancev1.UpsertGroupRequest{Key: "web", Template: proto.String("default"), Size: proto.Int32(1)})
		code(t, err, codes.OK)
		if g := s.Group("web"); !g.GetIsStatic() || g.GetStaticSize() != 2 || g.GetSize() != 1 || g.GetCapacity().GetCpuMillis() == 0 {
			t.Errorf("the static group: %v", g)
		}
		s.Dynamic("web")
		_, err = w.Set.UpsertGroup(ctx, "one", request)
		code(t, err, codes.OK)
		expect(t, s, "web", "draining draining running") // the first for the size, the second for the template
		code(t, w.Set.DeleteGroup(ctx, "one", "web", ""), codes.OK)
		expect(t, s, "web", "draining draining draining")
		_, err = w.Set.UpsertGroup(ctx, "one", &nstancev1.UpsertGroupRequest{Key: "web", Size: proto.Int32(1)})
		code(t, err, codes.FailedPrecondition)
		time.Sleep(5 * time.Minute)
		if synctest.Wait(); s.Group("web") != nil || w.Set.Group("one", "web") != nil {
			t.Errorf("the group is still there: %v", s.Group("web"))
		}
	})
}

func TestOnDemand(t *testing.T) {
	in(t, func(t *testing.T, w *shardstest.World, s *shardstest.Shard) {
		s.AddGroup("web", 0, "default")
		create := func(key, instanceType string) (*nstancev1.InstanceStatus, error) {
			return w.Set.CreateInstance(t.Context(), "one", &nstancev1.CreateInstanceRequest{
				Group: "web", IdempotencyKey: key, InstanceType: proto.String(instanceType),
			})
		}
		s.NoRoom(true)
		a, err := create("a", "large")
		code(t, err, codes.OK)
		if again, err := create("a", "large"); err != nil || again.GetId() != a.GetId() {
			t.Errorf("the same key: %v, %v", again, err)
		}
		_, err = create("a", "small")
		code(t, err, codes.FailedPrecondition)
		expect(t, s, "web", "pending")
		s.Refuse(a.GetId(), "no such image")
		b, err := create("a", "large")
		if code(t, err, codes.OK); b.GetId() == a.GetId() {
			t.Error("an instance that came to nothing is still named")
		}
		s.NoRoom(false)
		expect(t, s, "web", "deleted running")
		if i := s.Instance(b.GetId()); i.GetInstanceType() != "large" || !i.GetOnDemand() || s.Group("web").GetActualSize() != 0 {
			t.Errorf("the instance: %v", i)
		}
		code(t, w.Set.DeleteInstanceByKey(t.Context(), "one", "a"), codes.OK)
		expect(t, s, "web", "deleted draining")
		time.Sleep(time.Hour)
		expect(t, s, "web", "")
		if last, err := create("a", "large"); err != nil || last.GetId() != b.GetId() || last.GetPhase().String() != "INSTANCE_PHASE_DELETED" {
			t.Errorf("the key of one that is gone: %v, %v", last, err)
		}
	})
}

func TestWhatHappensToInstances(t *testing.T) {
	in(t, func(t *testing.T, w *shardstest.World, s *shardstest.Shard) {
		s.AddGroup("web", 1, "default")
		s.SetTiming(func(timing *shardstest.Timing) { timing.Boot = time.Minute })
		first := s.Instances("web")[0].GetId()
		code(t, w.Set.DeleteInstance(t.Context(), "one", first), codes.OK)
		expect(t, s, "web", "running pending") // the replacement is created first
		time.Sleep(time.Minute)
		expect(t, s, "web", "draining running")
		second := s.Instances("web")[1].GetId()
		at := time.Now().Add(30 * time.Second)
		s.Notice(second, at)
		expect(t, s, "web", "draining draining pending")
		if i := w.Set.Instance("one", second); i.GetReason() != "termination-notice" || !i.GetDrain().GetDeleteAt().AsTime().Equal(at) {
			t.Errorf("announced to end: %v", i)
		}
		time.Sleep(time.Minute)
		expect(t, s, "web", "draining deleted running")
		s.Kill(s.Instances("web")[2].GetId())
		expect(t, s, "web", "draining deleted deleted pending")
	})
}

func TestFaults(t *testing.T) {
	in(t, func(t *testing.T, w *shardstest.World, s *shardstest.Shard) {
		s.AddGroup("web", 1, "default")
		scale := func(size int32) error {
			_, err := w.Set.UpsertGroup(t.Context(), "one", &nstancev1.UpsertGroupRequest{Key: "web", Size: proto.Int32(size)})
			return err
		}
		s.Fail("UpsertGroup", status.Error(codes.Internal, "broken"), 1)
		code(t, scale(2), codes.Internal)
		expect(t, s, "web", "running")
		s.Lose("UpsertGroup", status.Error(codes.Internal, "broken"), 1)
		code(t, scale(2), codes.Internal)
		expect(t, s, "web", "running running")
		code(t, scale(3), codes.OK)
		calls := s.Calls("UpsertGroup")
		if last, ok := calls[len(calls)-1].(*nstancev1.UpsertGroupRequest); len(calls) != 3 || !ok || last.GetSize() != 3 {
			t.Errorf("calls: %v", calls)
		}
	})
}

func TestOthers(t *testing.T) {
	in(t, func(t *testing.T, w *shardstest.World, s *shardstest.Shard) {
		s.Template("default", map[string]any{"base": "x"})
		s.Upsert(&nstancev1.UpsertGroupRequest{Key: "web", Template: proto.String("default"), Size: proto.Int32(2)})
		w.Heard()
		known := w.Set.Group("one", "web")
		if known.GetActualSize() != 2 || known.GetVars().GetFields()["base"].GetStringValue() != "x" {
			t.Errorf("another operator's group: %v", known)
		}
		s.Race(1)
		request := &nstancev1.UpsertGroupRequest{Key: "web", Size: proto.Int32(3), IfEtag: proto.String(known.GetEtag())}
		_, err := w.Set.UpsertGroup(t.Context(), "one", request)
		code(t, err, codes.Aborted)
		w.Heard()
		if is := w.Set.Group("one", "web"); is.GetSize() != 2 || is.GetEtag() == known.GetEtag() {
			t.Errorf("after another one's change: %v", is)
		}
		s.SetTiming(func(timing *shardstest.Timing) { timing.Boot = time.Hour })
		s.KillAll("web")
		expect(t, s, "web", "deleted deleted pending pending")
		third := s.Instances("web")[2].GetId()
		s.Boot(third)
		s.Edit(third, func(i *nstancev1.InstanceStatus) { i.UnhealthyReason = "no report" })
		expect(t, s, "web", "deleted deleted running pending")
		w.Heard()
		if i := w.Set.Instance("one", third); i.GetUnhealthyReason() != "no report" {
			t.Errorf("the Set knows %v", i)
		}
		s.Delete("web")
		expect(t, s, "web", "deleted deleted draining deleted")
		if calls := s.Calls("DeleteGroup"); len(calls) > 0 {
			t.Errorf("calls: %v", calls)
		}
	})
}

// TestHeard waits for what the Set knows, whatever happens to its connections.
func TestHeard(t *testing.T) {
	in(t, func(t *testing.T, w *shardstest.World, s *shardstest.Shard) {
		s.Stop()
		w.Heard()
		if state, _ := w.Set.State("one"); state.Reachable || state.Err == nil {
			t.Errorf("down: %+v", state)
		}
		s.AddGroup("web", 2, "default")
		s.Start()
		w.Heard()
		state, _ := w.Set.State("one")
		if all := w.Set.Instances("one", "web"); len(all) != 2 || !state.Synced {
			t.Errorf("up again: %+v, %v", state, all)
		}
		w.Reconnect()
		if state, _ := w.Set.State("one"); state.Synced || !state.Reachable {
			t.Errorf("connected anew: %+v", state)
		}
		w.Heard()
		s.Mute()
		s.AddGroup("db", 0, "default")
		if w.Heard(); w.Set.Group("one", "db") != nil {
			t.Error("a mute shard is heard")
		}
	})
}
