package machine_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// A shard that accepts calls but does not respond does not delay other shards, however many
// machines are pending on it. When it responds again, all of its machines become ready.
func TestHangingShardDoesNotDelayOthers(t *testing.T) {
	const onA, onB = 60, 10
	on := shardstest.New(t, func(c *shards.Config) { c.Timeout = 5 * time.Minute }, "a", "b")
	on.Run()
	l := newLiveOn(t, on, "a", "b")
	a := l.shards.Shard("a")
	release := a.Hold("CreateInstance")
	defer release()
	for i := range onA {
		l.createMachine(fmt.Sprintf("on-a-%d", i), inDomain("a"))
	}
	l.eventually("all machines of shard a are placed", func(all []v1beta1.NstanceMachine) error {
		for i := range all {
			if all[i].Spec.IdempotencyKey == "" {
				return fmt.Errorf("%s is not placed", all[i].Name)
			}
		}
		return nil
	})
	for i := range onB {
		l.createMachine(fmt.Sprintf("on-b-%d", i), inDomain("b"))
	}
	l.eventually("the machines of shard b are ready", func(all []v1beta1.NstanceMachine) error {
		ready := 0
		for i := range all {
			if all[i].Spec.Shard == "b" && meta.IsStatusConditionTrue(all[i].Status.Conditions, v1beta1.ConditionReady) {
				ready++
			}
		}
		if ready != onB {
			return fmt.Errorf("%d are ready, want %d", ready, onB)
		}
		return nil
	})
	if n := len(a.Calls("CreateInstance")); n > 8 {
		t.Errorf("%d pending calls, want at most 8", n)
	}
	release()
	began := time.Now()
	l.eventually("all machines are ready", allReady(onA+onB))
	t.Logf("all were ready %v after the shard responded", time.Since(began).Round(time.Millisecond))
	// A call may be repeated, with the same key, if the cache is stale about its recorded result.
	keys := map[string]bool{}
	for _, call := range a.Calls("CreateInstance") {
		keys[call.(*nstancev1.CreateInstanceRequest).GetIdempotencyKey()] = true
	}
	if len(keys) != onA {
		t.Errorf("calls with %d different keys, want %d", len(keys), onA)
	}
}
