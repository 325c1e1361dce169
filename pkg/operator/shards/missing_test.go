package shards_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// never is the ID of an instance that no shard has or had.
const never = "knd01h455vb4pex5vsknk084sn02q"

// TestWhatTheStreamHasNotToldIsNotMissing: another operator created it, and the stream here is
// late. An instance that no shard ever had is missing once the shard has said so.
func TestWhatTheStreamHasNotToldIsNotMissing(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		one := w.Shard("one")
		one.AddGroup("web", 0, "default")
		synctest.Wait()
		one.Mute()
		made, err := one.Service().CreateInstance(t.Context(), &nstancev1.CreateInstanceRequest{Group: "web"})
		if err != nil {
			t.Fatal(err)
		}
		id := made.GetInstance().GetId()
		h := listen(t.Context(), t, w.Set)
		h.take()
		if w.Set.Instance("one", id) != nil || !state(t, w, "one").Synced || w.Set.Missing("one", "web", id) {
			t.Error("it is known, or counts as missing")
		}
		if got := h.take(); !slices.Contains(got, "instance/one/web") || w.Set.Instance("one", id) == nil || w.Set.Missing("one", "web", id) {
			t.Errorf("after the question: events %v", got)
		}

		for n := range 3 {
			if missing := w.Set.Missing("one", "web", never); missing != (n > 0) {
				t.Errorf("what there never was, asked for time %d: %v", n, missing)
			}
			if got := h.take(); slices.Contains(got, "instance/one/web") != (n == 0) {
				t.Errorf("events %v at time %d", got, n)
			}
		}
		if calls := len(one.Calls("GetInstanceStatus")); calls != 2 {
			t.Errorf("%d questions", calls)
		}
	}, "one")
}

// TestNothingIsMissingUnlessTheShardSaysSo: other refusals, such as of a tenant that the shard does
// not serve, are no answer. The question is repeated until there is one.
func TestNothingIsMissingUnlessTheShardSaysSo(t *testing.T) {
	for _, code := range []codes.Code{
		codes.Internal, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.ResourceExhausted,
	} {
		t.Run(code.String(), func(t *testing.T) {
			simulated(t, func(t *testing.T, w *shardstest.World) {
				one := w.Shard("one")
				one.Fail("GetInstanceStatus", status.Error(code, "not now"), -1)
				for range 3 {
					if w.Set.Missing("one", "web", never) || w.Set.Missing("other", "web", never) || w.Set.Missing("one", "web", "") {
						t.Error("it counts as missing")
					}
					soon()
				}
				one.Fail("GetInstanceStatus", nil, 0)
				soon()
				soon()
				if !w.Set.Missing("one", "web", never) {
					t.Error("it was not asked for again")
				}
			}, "one")
		})
	}
}
