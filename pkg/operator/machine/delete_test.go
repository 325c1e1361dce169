package machine_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// callCount returns the number of CreateInstance and DeleteInstance calls.
func (f *fixture) callCount() int { return len(f.calls()) }

func (f *fixture) shardGroup() *v1beta1.NstanceShardGroup {
	f.Helper()
	var g v1beta1.NstanceShardGroup
	if err := f.api.Get(f.Context(), client.ObjectKey{Namespace: f.ns, Name: "web--a"}, &g); err != nil {
		f.Fatal(err)
	}
	return &g
}

func (f *fixture) setFinalizers(o client.Object, finalizers ...string) {
	f.Helper()
	patch := client.MergeFrom(o.DeepCopyObject().(client.Object))
	o.SetFinalizers(finalizers)
	if err := f.api.Patch(f.Context(), o, patch); err != nil {
		f.Fatal(err)
	}
}

// A pool's instance that Cluster API deletes is replaced: one call to the shard, and the object
// stays until the instance is gone.
func TestDeletedPoolMachineIsReplaced(t *testing.T) {
	f := newFixture(t, "a")
	_, id := f.createPoolMachine("m")
	m := f.mustReconcile("m")
	f.wantCondition(m, "Ready", yes, "Running", "")
	if m.Spec.IdempotencyKey != "" || f.callCount() > 0 {
		t.Fatalf("adopted: %+v, calls %v", m.Spec, f.calls())
	}
	f.delete(m)
	for range 3 {
		m = f.mustReconcile("m")
	}
	f.wantCondition(m, "Terminating", yes, "DeletionAsked", "")
	if f.callCount() != 1 {
		t.Fatalf("calls %v, want one", f.calls())
	}
	f.now = f.now.Add(6 * time.Minute)
	for range 3 {
		f.mustReconcile("m")
		f.now = f.now.Add(5 * time.Second)
	}
	if f.callCount() != 2 {
		t.Errorf("calls %v: want one more after a long time without effect", f.calls())
	}
	a := f.shards.Shard("a")
	a.SetTiming(func(timing *shardstest.Timing) { timing.Drain, timing.Delete = time.Hour, time.Hour })
	a.NoRoom(false) // the replacement starts, and this instance drains
	f.wantPhase(id, draining)
	if err := f.shards.Set.AcknowledgeDrained(t.Context(), "a", id); err != nil {
		t.Fatal(err)
	}
	f.wantPhase(id, deleting)
	a.Kill(id)
	if m := f.mustReconcile("m"); m != nil || f.callCount() != 2 {
		t.Errorf("still there: %v; calls %v", m, f.calls())
	}
}

// wantPhase checks that the NstanceMachine m waits for its instance on shard a, which is in
// that phase.
func (f *fixture) wantPhase(id string, p nstancev1.InstancePhase) {
	f.Helper()
	if m, is := f.mustReconcile("m"), f.shards.Shard("a").Instance(id).GetPhase(); m == nil || is != p {
		f.Fatalf("the instance is %v, want %v; m is gone: %t", is, p, m == nil)
	}
}

// After clusterctl move has deleted an object, its instance belongs to another management
// cluster, and is not deleted, even if no paused Cluster is found any more.
func TestDeleteForMoveKeepsInstance(t *testing.T) {
	f := newFixture(t, "a")
	f.createMachine("m", nil)
	m := f.mustReconcile("m")
	const moved = `{"metadata":{"annotations":{"clusterctl.cluster.x-k8s.io/delete-for-move":""}}}`
	patch := client.RawPatch("application/merge-patch+json", []byte(moved))
	if err := f.api.Patch(t.Context(), m, patch); err != nil {
		t.Fatal(err)
	}
	before := f.callCount()
	f.delete(m)
	for range 2 {
		m = f.mustReconcile("m")
	}
	if m == nil || f.callCount() != before || len(f.instances()) != 1 {
		t.Fatalf("m is %v; calls %v", m, f.calls())
	}
	f.wantCondition(m, "Paused", yes, "Paused", "")
}

// A deletion is requested once, even if the instance has been leaving for long for another
// reason. It is requested again only after a long time without effect, or by a new process.
func TestDeletionIsNotRequestedRepeatedly(t *testing.T) {
	f := newFixture(t, "a")
	f.createPoolMachine("m")
	f.mustReconcile("m")
	o := f.machine("m")
	o.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
	if err := f.api.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	m := f.mustReconcile("m")
	f.wantCondition(m, "Terminating", yes, "ReplacementAsked", "")
	f.now = f.now.Add(time.Hour)
	f.delete(m)
	for range 3 {
		f.mustReconcile("m")
		f.now = f.now.Add(5 * time.Second)
	}
	if f.callCount() != 2 {
		t.Fatalf("calls %v, want one for the replacement and one for the deletion", f.calls())
	}
	f.restart(nil)
	for range 3 {
		f.mustReconcile("m")
	}
	if f.callCount() != 3 {
		t.Errorf("after a restart: calls %v, want 3", f.calls())
	}
}

// A deletion request is not repeated if only the write of the status failed.
func TestDeletionRequestWithFailedStatusWrite(t *testing.T) {
	f := newFixture(t, "a")
	f.createPoolMachine("m")
	f.delete(f.mustReconcile("m"))
	broken := true
	f.restart(func(what string) (before, after error) {
		if broken && strings.HasPrefix(what, "status") {
			before = errCrash
		}
		return before, nil
	})
	if _, err := f.reconcile("m"); err == nil {
		t.Fatal("the status was written")
	}
	broken = false
	f.wantCondition(f.mustReconcile("m"), "Terminating", yes, "DeletionAsked", "")
	if f.callCount() != 1 {
		t.Errorf("calls %v, want one", f.calls())
	}
}

// If the instance is leaving anyway, the deletion of its Machine does not request a
// replacement.
func TestLeavingPoolInstanceIsNotReplaced(t *testing.T) {
	for _, c := range []struct {
		name     string
		hosted   bool
		leave    func(f *fixture, id string)
		released bool // m is released before the instance is gone
	}{
		{name: "draining already", leave: func(f *fixture, id string) {
			f.shards.Shard("a").Drain(id, "expired", time.Now().Add(time.Hour))
		}},
		{name: "named in spec.remove", leave: func(f *fixture, id string) {
			g := f.shardGroup()
			g.Spec.Remove, g.Spec.Size = []v1beta1.InstanceID{v1beta1.InstanceID(id)}, new(int32(0))
			if err := f.api.Update(f.Context(), g); err != nil {
				f.Fatal(err)
			}
		}},
		{name: "group being deleted", leave: func(f *fixture, _ string) {
			g := f.shardGroup()
			f.setFinalizers(g, v1beta1.Finalizer)
			f.delete(g)
		}},
		{name: "group deleted", released: true, leave: func(f *fixture, _ string) { f.delete(f.shardGroup()) }},
		{name: "cluster being deleted", leave: deleteCluster},
		{name: "self-hosted cluster being deleted", hosted: true, released: true, leave: deleteCluster},
		{name: "cluster being deleted, cache stale", leave: deleteClusterUncached},
		{name: "self-hosted cluster being deleted, cache stale", hosted: true, released: true, leave: deleteClusterUncached},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, "a")
			f.selfHosted = c.hosted
			f.restart(nil)
			_, id := f.createPoolMachine("m")
			m := f.mustReconcile("m")
			c.leave(f, id)
			f.delete(m)
			m = f.mustReconcile("m")
			if f.callCount() > 0 || (m == nil) != c.released {
				t.Errorf("calls %v, m is %v", f.calls(), m)
			}
			f.shards.Shard("a").Kill(id)
			if m := f.mustReconcile("m"); m != nil {
				t.Errorf("not released after the instance is gone: %v", m.Status)
			}
		})
	}
}

func deleteCluster(f *fixture, _ string) {
	f.Helper()
	var c clusterv1.Cluster
	if err := f.api.Get(f.Context(), client.ObjectKey{Namespace: f.ns, Name: clusterName}, &c); err != nil {
		f.Fatal(err)
	}
	f.setFinalizers(&c, clusterv1.ClusterFinalizer)
	f.delete(&c)
}

// deleteClusterUncached deletes the Cluster while the cache shows it as it was.
func deleteClusterUncached(f *fixture, id string) {
	f.Helper()
	f.staleCluster = &clusterv1.Cluster{}
	if err := f.api.Get(f.Context(), client.ObjectKey{Namespace: f.ns, Name: clusterName}, f.staleCluster); err != nil {
		f.Fatal(err)
	}
	deleteCluster(f, id)
}

// A standalone machine's instance is deleted with its object, also of a self-hosted Cluster.
func TestStandaloneInstanceIsDeletedWithCluster(t *testing.T) {
	f := newFixture(t, "a")
	f.selfHosted = true
	f.restart(nil)
	f.createMachine("m", nil)
	m := f.mustReconcile("m")
	deleteCluster(f, "")
	f.delete(m)
	for range 2 {
		f.mustReconcile("m")
	}
	if f.get("m") != nil || len(f.instances()) > 0 {
		t.Errorf("left: %v, %v", f.get("m"), f.instances())
	}
}

func TestDeletionWaitsForShard(t *testing.T) {
	f := newFixture(t, "a", "b")
	f.createMachine("m", nil)
	m := f.mustReconcile("m")
	f.stopShard("a")
	f.delete(m)
	m = f.mustReconcile("m")
	f.wantCondition(m, "ShardReachable", no, "ShardUnreachable", "")

	// Before an operator has read its configuration, no shard is configured.
	f.shards.Configure()
	if f.mustReconcile("m") == nil {
		t.Fatal("released before the configuration was read")
	}
	f.shards.Configure("b")
	if f.mustReconcile("m") != nil {
		t.Fatal("not released although its shard is no longer configured")
	}
	if note := <-f.events; !strings.Contains(note, "shard a is no longer configured") {
		t.Errorf("event %q", note)
	}
}

// A Machine of a pool whose health check failed is replaced by the shard, which creates the
// replacement first. The Machine is not deleted here.
func TestPoolMachineRemediation(t *testing.T) {
	for name, markUnhealthy := range map[string]func(*fixture, *clusterv1.Machine){
		"annotation": func(f *fixture, m *clusterv1.Machine) {
			m.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
			if err := f.api.Update(f.Context(), m); err != nil {
				f.Fatal(err)
			}
		},
		"MachineHealthCheck": func(f *fixture, m *clusterv1.Machine) {
			for _, kind := range []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition} {
				meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: no, Reason: "Unhealthy"})
			}
			if err := f.api.Status().Update(f.Context(), m); err != nil {
				f.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "a")
			_, id := f.createPoolMachine("m")
			f.mustReconcile("m")
			markUnhealthy(f, f.machine("m"))
			var m *v1beta1.NstanceMachine
			for range 3 {
				m = f.mustReconcile("m")
			}
			f.wantCondition(m, "Terminating", yes, "ReplacementAsked", "")
			f.wantCondition(m, "Ready", yes, "Running", "")
			if f.callCount() != 1 || f.calls()[0].(*nstancev1.DeleteInstanceRequest).GetId() != id || !f.machine("m").DeletionTimestamp.IsZero() {
				t.Errorf("calls %v, the Machine is deleted %v", f.calls(), f.machine("m").DeletionTimestamp)
			}
			f.shards.Shard("a").SetTiming(func(timing *shardstest.Timing) { timing.Drain = time.Hour })
			f.shards.Shard("a").NoRoom(false) // the replacement starts
			f.wantCondition(f.mustReconcile("m"), "Terminating", yes, "AskedToBeReplaced", "")
		})
	}
}

// A Machine of a pod whose health check failed is deleted, so that the pod gets another. A
// Machine of a MachineSet, or by itself, is left to others.
func TestRemediationOfStandaloneMachine(t *testing.T) {
	for name, c := range map[string]struct {
		pod, owned, want bool
	}{
		"for a pod":                {pod: true, want: true},
		"for a pod, of a set":      {pod: true, owned: true},
		"standalone":               {},
		"standalone, of a set too": {owned: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "a")
			f.shards.Shard("a").AllowPods("web", &nstancev1.OnDemand{Namespaces: []string{"*"}, Max: 1})
			f.createMachine("m", func(m *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
				nm.Spec.Shard = "a"
				if c.pod {
					nm.Spec.PodNamespace = "ci"
				}
				if c.owned {
					m.OwnerReferences = []metav1.OwnerReference{{
						APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "s", UID: "s", Controller: new(true),
					}}
				}
			})
			f.wantCondition(f.mustReconcile("m"), "Ready", yes, "Running", "")
			m := f.machine("m")
			for _, kind := range []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition} {
				meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: no, Reason: "Unhealthy", Message: "no node"})
			}
			if err := f.api.Status().Update(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			f.mustReconcile("m")
			if gone := !f.machine("m").DeletionTimestamp.IsZero(); gone != c.want || (len(f.events) == 1) != c.want {
				t.Errorf("the Machine is deleted: %t, %d events; want %t", gone, len(f.events), c.want)
			}
			if len(f.calls()) != 1 {
				t.Errorf("calls %v, want one", f.calls())
			}
		})
	}
}

// After a failed create, the same key names another instance. The tombstone of the first does
// not end the deletion of an object that has no recorded ID.
func TestTombstoneDoesNotEndDeletionByKey(t *testing.T) {
	f := newFixture(t, "a")
	a := f.shards.Shard("a")
	a.NoRoom(true)
	f.createMachine("m", nil)
	f.restart(func(what string) (before, after error) {
		if strings.HasPrefix(what, "create") {
			after = errCrash
		}
		return nil, after
	})
	if _, err := f.reconcile("m"); err == nil {
		t.Fatal("the create was not interrupted")
	}
	f.restart(nil)
	first := f.instances()[0]
	a.Refuse(first.GetId(), "no such image")
	a.NoRoom(false)
	again := a.Calls("CreateInstance")[0].(*nstancev1.CreateInstanceRequest)
	if made, err := f.shards.Set.CreateInstance(t.Context(), "a", again); err != nil || made.GetId() == first.GetId() {
		t.Fatalf("the second instance: %v, %v", made, err)
	}
	f.delete(f.get("m"))
	for range 3 {
		f.mustReconcile("m")
	}
	if left := f.instances(); len(left) > 0 || f.get("m") != nil {
		t.Errorf("left: %v, %v", f.get("m"), left)
	}
}
