package shards_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

// simulated runs a test with working shards in simulated time.
func simulated(t *testing.T, test func(*testing.T, *shardstest.World), ids ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := shardstest.New(t, func(c *shards.Config) { c.Timeout = 2 * time.Second }, ids...)
		w.Run()
		w.Synced()
		test(t, w)
	})
}

// soon waits for longer than the longest back-off of a stream.
func soon() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// heard has the events of a source. Safe for concurrent use.
type heard struct {
	mu  sync.Mutex
	all []shards.Event
}

func listen(ctx context.Context, t *testing.T, s *shards.Set) *heard {
	t.Helper()
	h := &heard{}
	err := s.Source(func(e shards.Event) []reconcile.Request {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, e)
		return nil
	}).Start(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// take returns the events since the last time, each as of/shard/group.
func (h *heard) take() (all []string) {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.all {
		all = append(all, strings.Join([]string{e.Of, e.Shard, e.Group}, "/"))
	}
	h.all = nil
	return all
}

func state(t *testing.T, w *shardstest.World, shard string) shards.State {
	t.Helper()
	synctest.Wait()
	st, ok := w.Set.State(shard)
	if !ok {
		t.Fatalf("shard %s is not configured", shard)
	}
	return st
}

// TestABrokenShardHoldsUpNoOther: the other one's events arrive without delay.
func TestABrokenShardHoldsUpNoOther(t *testing.T) {
	for how, hurt := range map[string]func(*shardstest.Shard){"hung": (*shardstest.Shard).Hang, "stopped": (*shardstest.Shard).Stop} {
		t.Run(how, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *shardstest.World) {
				hurt(w.Shard("one"))
				soon()
				if st := state(t, w, "one"); st.Reachable || st.Err == nil {
					t.Errorf("the one that is %s: %+v", how, st)
				}
				h := listen(t.Context(), t, w.Set)
				h.take()
				w.Shard("two").AddGroup("web", 1, "default")
				if got := h.take(); !slices.Contains(got, "group/two/web") || !slices.Contains(got, "instance/two/web") {
					t.Errorf("events: %v", got)
				}
				if g := w.Set.Group("two", "web"); g.GetActualSize() != 1 {
					t.Errorf("known of the other: %v", g)
				}
				if st := state(t, w, "two"); !st.Reachable || !st.Synced || st.Err != nil {
					t.Errorf("the other: %+v", st)
				}
			}, "one", "two")
		})
	}
}

// TestKnownWhenAllIsTold: before both snapshots have ended, a missing value has no meaning.
func TestKnownWhenAllIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := shardstest.New(t, nil, "one")
		one := w.Shard("one")
		one.AddGroup("web", 1, "default")
		one.Fail("WatchInstances", status.Error(codes.Unavailable, "not yet"), -1)
		w.Run()
		soon()
		st := state(t, w, "one")
		if st.Known || st.Synced || w.Set.Group("one", "web") == nil || len(w.Set.Instances("one", "")) > 0 {
			t.Errorf("with groups alone: %+v", st)
		}
		one.Fail("WatchInstances", nil, 0)
		soon()
		st = state(t, w, "one")
		if !st.Known || !st.Synced || !st.Reachable || st.LastSync.IsZero() || len(w.Set.Instances("one", "web")) != 1 {
			t.Errorf("with all: %+v", st)
		}
		if st.ProviderKind != "process" || st.Region != "test" || st.Zone != "one" {
			t.Errorf("where it makes machines: %+v", st)
		}
	})
}

// TestLostAndFound: values are kept while a shard is unreachable, and corrected when it is back.
func TestLostAndFound(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		one := w.Shard("one")
		one.AddGroup("web", 2, "default")
		one.AddGroup("old", 1, "default")
		one.SetTiming(func(timing *shardstest.Timing) { timing.Drain = 0 })
		before := state(t, w, "one")
		time.Sleep(time.Second)
		one.Stop()
		soon()
		st := state(t, w, "one")
		if st.Reachable || st.Synced || !st.Known || st.Err == nil || !st.Since.After(before.Since) {
			t.Errorf("while it is away: %+v", st)
		}
		dead := one.Instances("web")[0].GetId()
		one.Kill(dead)
		one.AddGroup("new", 1, "default")
		one.SetTiming(func(timing *shardstest.Timing) { timing.Tombstone = 0 })
		gone := one.Instances("old")[0].GetId()
		one.Kill(gone)
		if w.Set.Instance("one", dead).GetPhase().String() != "INSTANCE_PHASE_RUNNING" || w.Set.Instance("one", gone) == nil {
			t.Error("what is known did not stay")
		}
		one.Start()
		soon()
		st = state(t, w, "one")
		if !st.Reachable || !st.Synced || st.Err != nil || !st.LastSync.After(before.LastSync) {
			t.Errorf("when it is back: %+v", st)
		}
		if w.Set.Group("one", "new") == nil || w.Set.Instance("one", gone) != nil {
			t.Error("what changed was not learned")
		}
		if len(w.Set.Groups("one")) != 3 || w.Set.Instance("one", dead).GetPhase().String() != "INSTANCE_PHASE_DELETED" {
			t.Errorf("groups %v, the one that died %v", w.Set.Groups("one"), w.Set.Instance("one", dead))
		}
	}, "one")
}

// TestRefusedForGood: a permanent error is shown, retried with a growing back-off, and cleared when
// it ends.
func TestRefusedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := shardstest.New(t, func(c *shards.Config) { c.Random = func() float64 { return 0.99 } }, "one")
		w.Run()
		w.Synced()
		one := w.Shard("one")
		one.Fail("WatchGroups", status.Error(codes.PermissionDenied, "not for you"), -1)
		one.Stop()
		one.Start()
		began := len(one.Calls("WatchGroups"))
		time.Sleep(time.Minute)
		if tries := len(one.Calls("WatchGroups")) - began; tries < 3 || tries > 8 {
			t.Errorf("tried %d times in a minute", tries)
		}
		st := state(t, w, "one")
		var failure *client.ShardError
		if st.Reachable || st.Synced || !st.Known || !errors.As(st.Err, &failure) || status.Code(failure.Err) != codes.PermissionDenied {
			t.Errorf("refused: %+v", st)
		}
		one.Fail("WatchGroups", nil, 0)
		time.Sleep(time.Minute)
		if st := state(t, w, "one"); !st.Reachable || !st.Synced || st.Err != nil {
			t.Errorf("let in again: %+v", st)
		}
	})
}

// TestRunOnce: two that follow the shards would undo each other's work.
func TestRunOnce(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		if err := w.Set.Run(t.Context()); err == nil {
			t.Error("it ran twice")
		}
	}, "one")
}
