package shards_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

// TestConfigure: shards are added and removed, and others are not affected.
func TestConfigure(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		for _, id := range []string{"one", "two"} {
			w.Shard(id).AddGroup("web", 1, "default")
		}
		w.Add("three").AddGroup("web", 1, "default")
		soon()
		streams := len(w.Shard("one").Calls("WatchGroups"))
		h := listen(t.Context(), t, w.Set)
		h.take()
		w.Configure("one", "three")
		if got := w.Set.Names(); !slices.Equal(got, []string{"one", "three"}) {
			t.Errorf("configured: %v", got)
		}
		soon()
		w.Synced()
		got := h.take()
		for _, want := range []string{"shard/two/", "group/two/web", "instance/two/web", "shard/three/", "group/three/web"} {
			if !slices.Contains(got, want) {
				t.Errorf("no event %s: %v", want, got)
			}
		}
		if _, ok := w.Set.State("two"); ok {
			t.Error("the one that left is still configured")
		}
		if w.Set.Group("three", "web").GetActualSize() != 1 {
			t.Error("the new one is not known")
		}
		if n := len(w.Shard("one").Calls("WatchGroups")); n != streams {
			t.Errorf("the one that stays was connected to anew: %d streams, then %d", streams, n)
		}
		w.Shard("two").AddGroup("more", 1, "default")
		if got := h.take(); len(got) > 0 {
			t.Errorf("events of the one that left: %v", got)
		}
	}, "one", "two")
}

// TestWhatLeftIsNoEvidence: a removed shard's values are dropped well after its State, so that a
// caller that reads State first does not take them for deleted.
func TestWhatLeftIsNoEvidence(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		two := w.Shard("two")
		two.AddGroup("web", 1, "default")
		soon()
		id := two.Instances("web")[0].GetId()
		known := func() bool {
			return w.Set.Group("two", "web") != nil && len(w.Set.Groups("two")) == 1 &&
				w.Set.Instance("two", id) != nil && len(w.Set.Instances("two", "web")) == 1
		}
		w.Set.Missing("two", "web", never)
		soon()
		if !w.Set.Missing("two", "web", never) {
			t.Fatal("the shard did not say that there is no such instance")
		}
		st := state(t, w, "two")
		w.Configure("one")
		if w.Set.Missing("two", "web", never) {
			t.Error("what it said is proof though it left")
		}
		if _, ok := w.Set.State("two"); ok || !st.Synced || !known() {
			t.Errorf("at once: %+v, configured %t, groups %v", st, ok, w.Set.Groups("two"))
		}
		h := listen(t.Context(), t, w.Set)
		h.take()
		time.Sleep(2 * time.Minute)
		if known() || w.Set.Group("two", "web") != nil || w.Set.Instances("two", "") != nil {
			t.Error("it is known for ever")
		}
		if got := h.take(); !slices.Equal(got, []string{"group/two/web", "instance/two/web", "shard/two/"}) {
			t.Errorf("events: %v", got)
		}
	}, "one", "two")
}

// TestConfiguredAgain, a shard counts as unknown.
func TestConfiguredAgain(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		two := w.Shard("two")
		two.AddGroup("web", 1, "default")
		soon()
		two.Hang()
		w.Configure("one")
		w.Configure("one", "two")
		if st, ok := w.Set.State("two"); !ok || st.Known || w.Set.Group("two", "web") != nil {
			t.Errorf("known: %+v, configured %t, groups %v", st, ok, w.Set.Groups("two"))
		}
		two.Unhang()
		soon()
		time.Sleep(2 * time.Minute) // only values from before are dropped
		if st := state(t, w, "two"); !st.Synced || w.Set.Group("two", "web") == nil {
			t.Errorf("heard: %+v, groups %v", st, w.Set.Groups("two"))
		}
	}, "one", "two")
}

// TestConfigureElsewhere: a shard with new addresses stays known, and is followed and called there.
func TestConfigureElsewhere(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		one := w.Shard("one")
		one.AddGroup("web", 1, "default")
		soon()
		one.SetTiming(func(timing *shardstest.Timing) { timing.Tombstone = 0 })
		one.Stop()
		gone := one.Instances("web")[0].GetId()
		one.Kill(gone)
		one.Move("10.9.9.9")
		one.AddGroup("new", 1, "default")
		w.Configure("one")
		if st, _ := w.Set.State("one"); !st.Known || st.Synced || w.Set.Group("one", "web") == nil {
			t.Errorf("before it is reached: %+v", st)
		}
		soon()
		if st := state(t, w, "one"); !st.Reachable || !st.Synced || w.Set.Group("one", "new") == nil {
			t.Errorf("at the new address: %+v", st)
		}
		if w.Set.Instance("one", gone) != nil {
			t.Error("what went meanwhile is still known")
		}
		if err := w.Set.DeleteGroup(t.Context(), "one", "new", ""); err != nil {
			t.Errorf("a call to the new address: %v", err)
		}
	}, "one")
}
