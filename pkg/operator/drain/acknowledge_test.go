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
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// acksOf returns the number of AcknowledgeDrained calls to both shards.
func acksOf(of *shardstest.World) int {
	return len(of.Shard("one").Calls("AcknowledgeDrained")) + len(of.Shard("two").Calls("AcknowledgeDrained"))
}

func request(shard string, n int) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: shard, Name: fmt.Sprint(n)}}
}

// However many drains of an unresponsive shard have ended, few workers block on its calls, and
// the others are left for other shards.
func TestUnresponsiveShardBlocksFewWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := shardstest.New(t, func(c *shards.Config) { c.Timeout, c.Poll = time.Hour, time.Hour }, "one", "two")
		all.Run()
		all.Synced()
		all.Shard("one").Hang()
		all.Shard("two").Hang()
		r := &Reconciler{Shards: all.Set}
		v := nodeView{instance: instance(func(i *nstancev1.InstanceStatus) { i.Drain = nil }), now: noon}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2*drainsAtOnce)
		requeued := 0
		acknowledge := func(shard string, n int) {
			result, err := r.acknowledge(ctx, request(shard, n), &drain{since: noon}, v, "it is empty")
			if err == nil && result.RequeueAfter > 0 {
				err = errRequeued
			}
			ended <- err
		}
		for n := range drainsAtOnce {
			go acknowledge("one", n)
		}
		synctest.Wait()
		for range len(ended) {
			if err := <-ended; errors.Is(err, errRequeued) {
				requeued++
			}
		}
		if n := acksOf(all); n != acksAtOnce || requeued != drainsAtOnce-acksAtOnce {
			t.Fatalf("%d calls and %d requeued, want %d and %d", n, requeued, acksAtOnce, drainsAtOnce-acksAtOnce)
		}
		go acknowledge("two", 0)
		synctest.Wait()
		if acksOf(all) != acksAtOnce+1 {
			t.Fatal("no call to the other shard")
		}
		cancel()
		synctest.Wait()
		again, _ := r.calls.Try("one", 1, func() error { return nil })
		if len(ended) != acksAtOnce+1 || again > 0 {
			t.Errorf("%d of %d calls have ended, or their places are not free", len(ended), acksAtOnce+1)
		}
	})
}

var errRequeued = errors.New("requeued")

func TestUnreachableShardIsNotCalled(t *testing.T) {
	all := shardstest.Start(t, "one", "two")
	all.Shard("one").Stop()
	all.Heard()
	r := &Reconciler{Shards: all.Set}
	v := nodeView{instance: instance(nil), now: noon}
	result, err := r.acknowledge(t.Context(), request("one", 1), &drain{since: noon}, v, "it is empty")
	if err != nil || result.RequeueAfter != time.Second || acksOf(all) > 0 {
		t.Errorf("%v, %v, %d calls: want a requeue and no call", result, err, acksOf(all))
	}
}
