package machine_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

// A shard that takes calls and does not answer them holds up no other one, however many
// machines are asked of it; when it answers again, all of them are made.
func TestAShardThatHangsHoldsUpNoOther(t *testing.T) {
	const onA, onB = 60, 10
	on := shardstest.New(t, func(c *shards.Config) { c.Timeout = 5 * time.Minute }, "a", "b")
	on.Run()
	l := runOn(t, on, "a", "b")
	at := func(domain string) func(*clusterv1.Machine, *v1beta1.NstanceMachine) {
		return func(m *clusterv1.Machine, _ *v1beta1.NstanceMachine) { m.Spec.FailureDomain = domain }
	}
	a := l.shards.Shard("a")
	release := a.Hold("CreateInstance")
	defer release()
	for i := range onA {
		l.own(fmt.Sprintf("on-a-%d", i), at("a"))
	}
	l.eventually("all wait for their instances", func(all []v1beta1.NstanceMachine) error {
		for i := range all {
			if all[i].Spec.IdempotencyKey == "" {
				return fmt.Errorf("%s was not placed", all[i].Name)
			}
		}
		return nil
	})
	for i := range onB {
		l.own(fmt.Sprintf("on-b-%d", i), at("b"))
	}
	l.eventually("the other shard's are ready", func(all []v1beta1.NstanceMachine) error {
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
		t.Errorf("%d calls hang, want 8 at most", n)
	}
	release()
	began := time.Now()
	l.eventually("all are ready", allReady(onA+onB))
	t.Logf("all were ready %v after the shard answered", time.Since(began).Round(time.Millisecond))
	if n := len(a.Calls("CreateInstance")); n != onA {
		t.Errorf("%d calls, want %d", n, onA)
	}
}
