package pool_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

func TestStatusTellsWhatShardsSay(t *testing.T) {
	s := newStage(t, "a", "b")
	s.world.Shard("a").Static("web", 1, "knd")
	s.world.Shard("b").AddGroup("web", 1, "knd")
	s.world.Synced()
	s.run(s.world)
	s.pool("web", 2, "a", "b")
	s.settled("web", []string{"a", "b"}, 1, 1)
	s.eventually("the status", func() error {
		st := s.get("web").Status
		if !deref(st.Ready, false) || !deref(st.Initialization.Provisioned, false) || !deref(st.IsStatic, false) ||
			st.Template != "knd" || st.InfrastructureMachineKind != "NstanceMachine" || deref(st.Replicas, 0) != 2 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	s.world.Shard("a").Dynamic("web")
	s.eventually("it is static no more", func() error {
		if st := s.get("web").Status; deref(st.IsStatic, true) {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

func TestFailingCreationsAreSummedUp(t *testing.T) {
	s := start(t, "a", "b")
	s.pool("web", 2, "a", "b")
	s.settled("web", []string{"a", "b"}, 1, 1)
	s.eventually("the part on b fails", func() error {
		g := s.part("web--b")
		meta.SetStatusCondition(&g.Status.Conditions, metav1.Condition{
			Type: v1beta1.ConditionCreatesFailing, Status: metav1.ConditionTrue, Reason: "NoCapacity", Message: "nothing left of small",
		})
		return s.api.Status().Update(t.Context(), g)
	})
	s.eventually("the pool says so", func() error {
		c := meta.FindStatusCondition(s.get("web").Status.Conditions, v1beta1.ConditionCreatesFailing)
		if c == nil || c.Reason != "NoCapacity" || c.Message != "shard b: nothing left of small" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

func TestAPoolThatNobodyOwnsSaysSo(t *testing.T) {
	s := start(t, "a")
	s.create(&v1beta1.NstanceMachinePool{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"a"}, Template: "knd"},
	})
	s.eventually("the pool waits", func() error {
		p := s.get("web")
		c := meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionReady)
		if c == nil || c.Reason != "WaitingForMachinePool" || p.Status.Ready != nil {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	if got := s.sizes("web", "a"); got[0] != -1 {
		t.Errorf("a part of size %d was made", got[0])
	}
}

func TestTooManyReplicasAreNotMade(t *testing.T) {
	s := start(t, "a")
	s.world.Synced()
	s.world.Shard("a").Stop() // it would begin to make them
	s.pool("web", 1_000_000_000, "a")
	s.eventually("the pool says so", func() error {
		c := meta.FindStatusCondition(s.get("web").Status.Conditions, v1beta1.ConditionReady)
		if c == nil || c.Message != "spec.replicas of MachinePool web: 1000000000, want at most 10000" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if got := s.sizes("web", "a"); got[0] > 10000 {
		t.Errorf("the part is to have %d", got[0])
	}
}
