package drain

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// silent is shards whose calls end only with their context.
type silent struct {
	Shards

	reachable bool
	asked     chan string
}

func (s *silent) State(string) (shards.State, bool) {
	return shards.State{Reachable: s.reachable}, true
}

func (s *silent) AcknowledgeDrained(ctx context.Context, shard, _ string) error {
	s.asked <- shard
	<-ctx.Done()
	return ctx.Err()
}

func request(shard string, n int) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: shard, Name: fmt.Sprint(n)}}
}

// However many drains of a shard that does not answer have ended, few workers wait for
// it, and others are left for other shards.
func TestASilentShardHoldsFewWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silent{reachable: true, asked: make(chan string, 2*drainsAtOnce)}
		r := &Reconciler{Shards: s}
		v := view{instance: instance(func(i *nstancev1.InstanceStatus) { i.Drain = nil }), now: noon}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2*drainsAtOnce)
		back := 0
		tell := func(shard string, n int) {
			result, err := r.acknowledge(ctx, request(shard, n), &drain{since: noon}, v, "it is empty")
			if err == nil && result.RequeueAfter > 0 {
				err = errLater
			}
			ended <- err
		}
		for n := range drainsAtOnce {
			go tell("one", n)
		}
		synctest.Wait()
		for range len(ended) {
			if err := <-ended; errors.Is(err, errLater) {
				back++
			}
		}
		if len(s.asked) != acksAtOnce || back != drainsAtOnce-acksAtOnce {
			t.Fatalf("%d wait and %d come back, want %d and %d", len(s.asked), back, acksAtOnce, drainsAtOnce-acksAtOnce)
		}
		go tell("two", 0)
		synctest.Wait()
		if len(s.asked) != acksAtOnce+1 {
			t.Fatal("another shard is not told")
		}
		cancel()
		synctest.Wait()
		if len(ended) != acksAtOnce+1 || !r.places.take("one") {
			t.Errorf("%d of %d have ended, or their places are not free", len(ended), acksAtOnce+1)
		}
	})
}

var errLater = errors.New("later")

func TestAShardThatIsNotReachableIsNotTold(t *testing.T) {
	s := &silent{asked: make(chan string, 1)}
	r := &Reconciler{Shards: s}
	v := view{instance: instance(nil), now: noon}
	result, err := r.acknowledge(t.Context(), request("one", 1), &drain{since: noon}, v, "it is empty")
	if err != nil || result.RequeueAfter != time.Second || len(s.asked) > 0 {
		t.Errorf("%v, %v, %d calls: want to look again", result, err, len(s.asked))
	}
}
