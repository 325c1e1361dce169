package shards_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestWhatNoStreamTold, and a poll lacks, restarts the streams, once; until their snapshots have
// ended, nothing counts as evidence.
func TestWhatNoStreamTold(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		one := w.Shard("one")
		one.AddGroup("web", 1, "default")
		soon()
		one.Mute()
		_, err := w.Set.UpsertGroup(t.Context(), "one", &nstancev1.UpsertGroupRequest{
			Key: "short", Size: proto.Int32(0), Template: proto.String("default"),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Set.DeleteGroup(t.Context(), "one", "short", ""); err != nil {
			t.Fatal(err)
		}
		streams := len(one.Calls("WatchGroups"))
		soon()
		if n := len(one.Calls("WatchGroups")) - streams; n != 1 {
			t.Errorf("the streams began anew %d times", n)
		}
		if st := state(t, w, "one"); st.Synced || !st.Known || !st.Reachable || w.Set.Group("one", "short") == nil {
			t.Errorf("before they have told all: %+v, groups %v", st, w.Set.Groups("one"))
		}
		one.Unmute()
		soon()
		if st := state(t, w, "one"); !st.Synced || w.Set.Group("one", "short") != nil || w.Set.Group("one", "web") == nil {
			t.Errorf("when they have: %+v, groups %v", st, w.Set.Groups("one"))
		}
	}, "one")
}
