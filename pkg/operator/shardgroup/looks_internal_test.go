package shardgroup

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestLooks: what is asked for while others are read is read at once, each look is of use
// once, and a generation that is not the decision's, or an error, is told.
func TestLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		request := func(n int) reconcile.Request {
			return reconcile.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprintf("web-%d", n)}}
		}
		var batches []int
		var fails error
		answers := make(chan struct{})
		l := newLooks(func(_ context.Context, all []reconcile.Request) (map[reconcile.Request]identity, error) {
			batches = append(batches, len(all))
			<-answers
			now := map[reconcile.Request]identity{}
			for _, req := range all {
				if req != request(1) { // gone
					now[req] = identity{"uid", 2}
				}
			}
			return now, fails
		})
		if err := l.begin(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		for n := range 100 {
			l.ask(request(n), basis{identity{"uid", int64(2 + n/50)}, "etag"})
			synctest.Wait()
		}
		if _, underWay := l.take(request(99)); !underWay {
			t.Error("a look that waits is not under way")
		}
		answers <- struct{}{}
		answers <- struct{}{}
		synctest.Wait()
		if len(batches) != 2 || batches[0] != 1 || batches[1] != 99 {
			t.Errorf("read %v at a time, want 1 and 99", batches)
		}
		if queue.Len() != 100 {
			t.Errorf("%d are reconciled again, want all", queue.Len())
		}
		for n, want := range map[int]bool{0: true, 1: false, 49: true, 50: false} {
			switch found, underWay := l.take(request(n)); {
			case underWay || found == nil:
				t.Errorf("%d has no look", n)
			case found.fresh != want:
				t.Errorf("%d is fresh: %v, want %v", n, found.fresh, want)
			}
		}
		if again, underWay := l.take(request(0)); again != nil || underWay {
			t.Errorf("a look can be taken again: %+v", again)
		}

		fails = errors.New("not now")
		l.ask(request(0), basis{identity{"uid", 2}, "etag"})
		answers <- struct{}{}
		synctest.Wait()
		failed, _ := l.take(request(0))
		if failed == nil || !errors.Is(failed.err, fails) {
			t.Fatalf("the look is %+v, want its error", failed)
		}
		l.keep(request(0), failed)
		if kept, _ := l.take(request(0)); kept != failed {
			t.Errorf("kept %+v, want %+v", kept, failed)
		}
	})
}
