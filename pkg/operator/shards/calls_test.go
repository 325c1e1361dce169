package shards_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func scale(group string, size int32) *nstancev1.UpsertGroupRequest {
	return &nstancev1.UpsertGroupRequest{Key: group, Size: proto.Int32(size)}
}

// TestAnswersAreSeen at once, before any stream reports them, and stay visible.
func TestAnswersAreSeen(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		one := w.Shard("one")
		one.AddGroup("web", 1, "default")
		soon()
		one.Mute()
		h := listen(t.Context(), t, w.Set)
		h.take()
		resp, err := w.Set.UpsertGroup(t.Context(), "one", scale("web", 3))
		if err != nil || w.Set.Group("one", "web").GetSize() != 3 || resp.GetGroup().GetSize() != 3 {
			t.Fatalf("changed: %v, %v; known %v", resp, err, w.Set.Group("one", "web"))
		}
		i, err := w.Set.CreateInstance(t.Context(), "one", &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: "a"})
		if err != nil || w.Set.Instance("one", i.GetId()).GetIdempotencyKey() != "a" {
			t.Fatalf("created: %v, %v", i, err)
		}
		if got := h.take(); len(got) != 2 || got[0] != "group/one/web" || got[1] != "instance/one/web" {
			t.Errorf("events: %v", got)
		}
		one.Unmute()
		soon()
		if n := len(w.Set.Instances("one", "web")); n != 4 || w.Set.Group("one", "web").GetActualSize() != 3 {
			t.Errorf("in the end %d instances, group %v", n, w.Set.Group("one", "web"))
		}
	}, "one")
}

// TestALateAnswerReplacesNothing that the stream has reported since.
func TestALateAnswerReplacesNothing(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		one := w.Shard("one")
		one.AddGroup("web", 1, "default")
		soon()
		release := one.Hold("UpsertGroup")
		done := make(chan error, 1)
		go func() {
			_, err := w.Set.UpsertGroup(t.Context(), "one", scale("web", 3))
			done <- err
		}()
		synctest.Wait()
		if g := w.Set.Group("one", "web"); g.GetActualSize() != 3 {
			t.Fatalf("told by the stream: %v", g)
		}
		release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if g := w.Set.Group("one", "web"); g.GetActualSize() != 3 {
			t.Errorf("after the answer: %v", g)
		}
	}, "one")
}

// TestThePollPutsRight what no stream reports, but nothing reported since it was sent; and what it
// lacks is not gone until the stream reports that.
func TestThePollPutsRight(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		one := w.Shard("one")
		one.AddGroup("old", 0, "default")
		soon()
		one.Mute()
		one.AddGroup("new", 2, "default")
		if err := w.Set.DeleteGroup(t.Context(), "one", "old", ""); err != nil {
			t.Fatal(err)
		}
		soon()
		if w.Set.Group("one", "new") == nil || w.Set.Group("one", "old") == nil || !state(t, w, "one").Synced {
			t.Errorf("known after a poll: %v", w.Set.Groups("one"))
		}
		one.Unmute()
		soon()
		if w.Set.Group("one", "old") != nil {
			t.Errorf("known after the streams told: %v", w.Set.Groups("one"))
		}
		release := one.Hold("ListGroups")
		time.Sleep(time.Second) // so that a poll waits for its answer
		one.AddGroup("newer", 1, "default")
		if _, err := w.Set.UpsertGroup(t.Context(), "one", scale("new", 0)); err != nil {
			t.Fatal(err)
		}
		if err := w.Set.DeleteGroup(t.Context(), "one", "new", ""); err != nil {
			t.Fatal(err)
		}
		for _, i := range one.Instances("new") {
			if err := w.Set.AcknowledgeDrained(t.Context(), "one", i.GetId()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		h := listen(t.Context(), t, w.Set)
		h.take()
		release()
		if got := h.take(); len(got) > 0 {
			t.Errorf("a late answer made a difference: %v", got)
		}
		if w.Set.Group("one", "newer").GetActualSize() != 1 || w.Set.Group("one", "new") != nil {
			t.Errorf("known after a late answer: %v", w.Set.Groups("one"))
		}
	}, "one")
}

// TestTombstonesGo with those of the shard, although no stream reports that.
func TestTombstonesGo(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		one := w.Shard("one")
		one.SetTiming(func(timing *shardstest.Timing) { timing.Tombstone = time.Minute })
		one.AddGroup("web", 1, "default")
		id := one.Instances("web")[0].GetId()
		one.Kill(id)
		soon()
		if i := w.Set.Instance("one", id); i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED {
			t.Fatalf("the one that died: %v", i)
		}
		time.Sleep(2 * time.Minute)
		if i := w.Set.Instance("one", id); i != nil {
			t.Errorf("the tombstone is still there: %v", i)
		}
		if n := len(w.Set.Instances("one", "")); n != 1 {
			t.Errorf("%d instances are left", n)
		}
	}, "one")
}

// TestCallsThatFail name the shard; some errors are no failures of it.
func TestCallsThatFail(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		ctx := t.Context()
		var failure *client.ShardError
		_, err := w.Set.UpsertGroup(ctx, "three", scale("web", 1))
		if !errors.As(err, &failure) || !strings.Contains(err.Error(), "three") || !strings.Contains(err.Error(), "one, two") {
			t.Errorf("a shard that is not configured: %v", err)
		}
		if _, err = w.Set.UpsertGroup(ctx, "one", scale("web", 1)); !errors.As(err, &failure) || status.Code(err) != codes.NotFound {
			t.Errorf("no such group: %v", err)
		}
		for what, err := range map[string]error{
			"group":    w.Set.DeleteGroup(ctx, "one", "web", ""),
			"instance": w.Set.DeleteInstance(ctx, "one", "knd01h455vb4pex5vsknk084sn02q"),
			"key":      w.Set.DeleteInstanceByKey(ctx, "one", "a"),
		} {
			if err != nil {
				t.Errorf("delete a %s that is not there: %v", what, err)
			}
		}
		if err := w.Set.AcknowledgeDrained(ctx, "one", "knd01h455vb4pex5vsknk084sn02q"); status.Code(err) != codes.NotFound {
			t.Errorf("acknowledge what is not there: %v", err)
		}
		if st := state(t, w, "one"); !st.Reachable || st.Err != nil {
			t.Errorf("after refusals: %+v", st)
		}
	}, "one", "two")
}

// TestRefusedDeletes: a refusal other than NOT_FOUND, such as of a tenant that the shard does not
// serve, does not mean that what was to be deleted is gone.
func TestRefusedDeletes(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		for _, code := range []codes.Code{codes.FailedPrecondition, codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented} {
			for _, method := range []string{"DeleteGroup", "DeleteInstance"} {
				w.Shard("one").Fail(method, status.Error(code, "no"), -1)
			}
			for what, err := range map[string]error{
				"group":    w.Set.DeleteGroup(t.Context(), "one", "web", ""),
				"instance": w.Set.DeleteInstance(t.Context(), "one", never),
				"key":      w.Set.DeleteInstanceByKey(t.Context(), "one", "a"),
			} {
				if status.Code(err) != code {
					t.Errorf("delete a %s, refused with %v: %v", what, code, err)
				}
			}
		}
		for what, err := range map[string]error{
			"group":    w.Set.DeleteGroup(t.Context(), "three", "web", ""),
			"instance": w.Set.DeleteInstance(t.Context(), "three", never),
		} {
			if err == nil {
				t.Errorf("delete a %s of a shard that is not configured: no error", what)
			}
		}
	}, "one")
}

// TestCallsEnd: a leader that does not answer is unreachable until it does.
func TestCallsEnd(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		one := w.Shard("one")
		one.Hang()
		hasty, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := w.Set.DeleteGroup(hasty, "one", "web", ""); err == nil {
			t.Error("a call was answered")
		}
		if st := state(t, w, "one"); !st.Reachable {
			t.Errorf("after a caller gave up: %+v", st)
		}
		began := time.Now()
		err := w.Set.DeleteGroup(t.Context(), "one", "web", "")
		if status.Code(err) != codes.DeadlineExceeded || time.Since(began) > 3*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if st := state(t, w, "one"); st.Reachable || status.Code(st.Err) != codes.DeadlineExceeded || !st.Synced {
			t.Errorf("while it hangs: %+v", st)
		}
		one.Unhang()
		if err := w.Set.DeleteGroup(t.Context(), "one", "web", ""); err != nil {
			t.Error(err)
		}
		if st := state(t, w, "one"); !st.Reachable || st.Err != nil {
			t.Errorf("when it answers: %+v", st)
		}
	}, "one")
}
