package shards_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

// TestSourceTellsAllFirst, then changes, until its context ends.
func TestSourceTellsAllFirst(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		one := w.Shard("one")
		one.AddGroup("web", 1, "default")
		one.Problem("ProviderError", "web", "", "it burns")
		one.Problem("Throttled", "", "", "too fast")
		one.ProblemOver("Throttled", "", "")
		soon()
		ctx, cancel := context.WithCancel(t.Context())
		h := listen(ctx, t, w.Set)
		want := []string{"group/one/web", "instance/one/web", "problem/one/web", "shard/one/"}
		if got := h.take(); !slices.Equal(got, want) {
			t.Errorf("at first: %v, want %v", got, want)
		}
		one.SetCondition("web", "Degraded", true, "ProviderError", "it burns")
		one.ProblemOver("ProviderError", "web", "")
		got := h.take()
		slices.Sort(got)
		if want := []string{"group/one/web", "problem/one/web"}; !slices.Equal(got, want) {
			t.Errorf("then: %v, want %v", got, want)
		}
		cancel()
		synctest.Wait()
		one.AddGroup("more", 1, "default")
		soon()
		if got := h.take(); len(got) > 0 {
			t.Errorf("after its end: %v", got)
		}
	}, "one")
}

// TestSourceFeedsAQueue, and may read the set meanwhile.
func TestSourceFeedsAQueue(t *testing.T) {
	t.Parallel()
	w := shardstest.Start(t, "one")
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	source := w.Set.Source(func(e shards.Event) []reconcile.Request {
		if e.Of != shards.OfGroup || w.Set.Group(e.Shard, e.Group).GetActualSize() != 2 {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: e.Group}}}
	})
	if err := source.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	w.Shard("one").AddGroup("web", 2, "default")
	if r, shutdown := queue.Get(); shutdown || r.Name != "web" {
		t.Errorf("to be reconciled: %v, %v", r, shutdown)
	}
}

// TestAResyncIsNoNews: restarted streams cause events for differences only.
func TestAResyncIsNoNews(t *testing.T) {
	simulated(t, func(t *testing.T, w *shardstest.World) {
		one := w.Shard("one")
		one.AddGroup("web", 3, "default")
		soon()
		h := listen(t.Context(), t, w.Set)
		h.take()
		one.Stop()
		one.Start()
		soon()
		w.Synced()
		if got := h.take(); slices.ContainsFunc(got, func(e string) bool { return e != "shard/one/" }) {
			t.Errorf("events: %v", got)
		}
	}, "one")
}
