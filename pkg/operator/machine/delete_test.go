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
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// asks is how many calls the shards had.
func (w *world) asks() int { return len(w.fleet.asked) }

func (w *world) part() *v1beta1.NstanceShardGroup {
	w.Helper()
	var g v1beta1.NstanceShardGroup
	if err := w.api.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: "web--a"}, &g); err != nil {
		w.Fatal(err)
	}
	return &g
}

func (w *world) finalize(o client.Object, finalizers ...string) {
	w.Helper()
	patch := client.MergeFrom(o.DeepCopyObject().(client.Object))
	o.SetFinalizers(finalizers)
	if err := w.api.Patch(w.Context(), o, patch); err != nil {
		w.Fatal(err)
	}
}

// A pool's instance that Cluster API deletes is replaced: the shard is asked once, and
// the object stays until the instance is gone.
func TestAPoolsInstanceIsReplaced(t *testing.T) {
	w := newWorld(t, "a")
	w.pooled("m")
	m := w.must("m")
	w.want(m, "Ready", yes, "Running", "")
	if m.Spec.IdempotencyKey != "" || w.asks() > 0 {
		t.Fatalf("adopted: %+v, calls %v", m.Spec, w.fleet.asked)
	}
	w.delete(m)
	for range 3 {
		m = w.must("m")
	}
	w.want(m, "Terminating", yes, "DeletionAsked", "")
	if w.asks() != 1 {
		t.Fatalf("calls %v, want one", w.fleet.asked)
	}
	w.now = w.now.Add(6 * time.Minute)
	for range 3 {
		w.must("m")
		w.now = w.now.Add(5 * time.Second)
	}
	if w.asks() != 2 {
		t.Errorf("calls %v: want one more when there was no effect for long", w.fleet.asked)
	}
	for _, p := range []nstancev1.InstancePhase{draining, deleting} {
		w.fleet.set("a", poolID, func(i *nstancev1.InstanceStatus) { i.Phase = p })
		if w.must("m") == nil {
			t.Fatalf("released while the instance is %v", p)
		}
	}
	w.fleet.set("a", poolID, func(i *nstancev1.InstanceStatus) { i.Phase = deleted })
	if m := w.must("m"); m != nil || w.asks() != 2 {
		t.Errorf("left: %v; calls %v", m, w.fleet.asked)
	}
}

// What clusterctl deletes lives on in another management cluster, and so does its
// instance, though no Cluster is seen any more that is paused.
func TestWhatIsMovedAwayKeepsItsInstance(t *testing.T) {
	w := newWorld(t, "a")
	w.own("m", nil)
	m := w.must("m")
	const moved = `{"metadata":{"annotations":{"clusterctl.cluster.x-k8s.io/delete-for-move":""}}}`
	patch := client.RawPatch("application/merge-patch+json", []byte(moved))
	if err := w.api.Patch(t.Context(), m, patch); err != nil {
		t.Fatal(err)
	}
	asked := w.asks()
	w.delete(m)
	for range 2 {
		m = w.must("m")
	}
	if m == nil || w.asks() != asked || len(w.fleet.all()) != 1 {
		t.Fatalf("left: %v; calls %v", m, w.fleet.asked)
	}
	w.want(m, "Paused", yes, "Paused", "")
}

// A deletion that follows on something else that had the instance leave, long ago, is
// asked for once, too; and again only when that had no effect for long, or by another
// process.
func TestADeletionIsNotAskedForAllTheTime(t *testing.T) {
	w := newWorld(t, "a")
	w.pooled("m")
	w.must("m")
	o := w.owner("m")
	o.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
	if err := w.api.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	m := w.must("m")
	w.want(m, "Terminating", yes, "ReplacementAsked", "")
	w.now = w.now.Add(time.Hour)
	w.delete(m)
	for range 3 {
		w.must("m")
		w.now = w.now.Add(5 * time.Second)
	}
	if w.asks() != 2 {
		t.Fatalf("calls %v, want one for the replacement and one for the deletion", w.fleet.asked)
	}
	w.restart(nil)
	for range 3 {
		w.must("m")
	}
	if w.asks() != 3 {
		t.Errorf("after a restart: calls %v, want 3", w.fleet.asked)
	}
}

// A shard that was asked is not asked again because that could not be written down.
func TestADeletionThatCanNotBeWrittenDown(t *testing.T) {
	w := newWorld(t, "a")
	w.pooled("m")
	w.delete(w.must("m"))
	broken := true
	w.restart(func(what string) (before, after error) {
		if broken && strings.HasPrefix(what, "status") {
			before = errCrash
		}
		return before, nil
	})
	if _, err := w.pass("m"); err == nil {
		t.Fatal("the status was written")
	}
	broken = false
	w.want(w.must("m"), "Terminating", yes, "DeletionAsked", "")
	if w.asks() != 1 {
		t.Errorf("calls %v, want one", w.fleet.asked)
	}
}

// Where the instance leaves anyhow, nothing is asked that would have it replaced.
func TestAPoolsInstanceThatLeavesIsNotReplaced(t *testing.T) {
	for _, c := range []struct {
		name     string
		hosted   bool
		leave    func(*world)
		released bool // at once
	}{
		{name: "it drains already", leave: func(w *world) {
			w.fleet.set("a", poolID, func(i *nstancev1.InstanceStatus) { i.Phase = draining })
		}},
		{name: "its pool names it", leave: func(w *world) {
			g := w.part()
			g.Spec.Remove, g.Spec.Size = []v1beta1.InstanceID{poolID}, new(int32(0))
			if err := w.api.Update(w.Context(), g); err != nil {
				w.Fatal(err)
			}
		}},
		{name: "its group is being deleted", leave: func(w *world) {
			g := w.part()
			w.finalize(g, v1beta1.Finalizer)
			w.delete(g)
		}},
		{name: "its group is gone", released: true, leave: func(w *world) { w.delete(w.part()) }},
		{name: "the cluster is being deleted", leave: deleteCluster},
		{name: "the cluster lets go of it", hosted: true, released: true, leave: deleteCluster},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "a")
			w.hosted = c.hosted
			w.restart(nil)
			w.pooled("m")
			m := w.must("m")
			c.leave(w)
			w.delete(m)
			m = w.must("m")
			if w.asks() > 0 || (m == nil) != c.released {
				t.Errorf("calls %v, left %v", w.fleet.asked, m)
			}
			w.fleet.set("a", poolID, func(i *nstancev1.InstanceStatus) { i.Phase = deleted })
			if m := w.must("m"); m != nil {
				t.Errorf("left when the instance is gone: %v", m.Status)
			}
		})
	}
}

func deleteCluster(w *world) {
	w.Helper()
	var c clusterv1.Cluster
	if err := w.api.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: clusterName}, &c); err != nil {
		w.Fatal(err)
	}
	w.finalize(&c, clusterv1.ClusterFinalizer)
	w.delete(&c)
}

// An instance of its own goes with its object, also with a self-hosted Cluster.
func TestAnOwnInstanceGoesWithTheCluster(t *testing.T) {
	w := newWorld(t, "a")
	w.hosted = true
	w.restart(nil)
	w.own("m", nil)
	m := w.must("m")
	deleteCluster(w)
	w.delete(m)
	for range 2 {
		w.must("m")
	}
	if w.get("m") != nil || len(w.fleet.all()) > 0 {
		t.Errorf("left: %v, %v", w.get("m"), w.fleet.all())
	}
}

func TestADeletionWaitsForItsShard(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.own("m", nil)
	m := w.must("m")
	w.fleet.change("a", func(s *fakeShard) { s.silent() })
	w.delete(m)
	m = w.must("m")
	w.want(m, "ShardReachable", no, "ShardUnreachable", "")

	// An operator that has not read its configuration knows of no shard.
	a := w.fleet.shards
	w.fleet.shards = map[string]*fakeShard{}
	if w.must("m") == nil {
		t.Fatal("released before the configuration was read")
	}
	w.fleet.shards = map[string]*fakeShard{"b": a["b"]}
	if w.must("m") != nil {
		t.Fatal("kept for a shard that is none any more")
	}
	if note := <-w.notes; !strings.Contains(note, "shard a is none of the operator's any more") {
		t.Errorf("event %q", note)
	}
}

// A Machine of a pool whose health check failed is replaced by the shard, which makes
// the new instance first; nothing is deleted here.
func TestAPoolsMachineIsRemedied(t *testing.T) {
	for name, ill := range map[string]func(*world, *clusterv1.Machine){
		"the annotation": func(w *world, m *clusterv1.Machine) {
			m.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
			if err := w.api.Update(w.Context(), m); err != nil {
				w.Fatal(err)
			}
		},
		"a MachineHealthCheck": func(w *world, m *clusterv1.Machine) {
			for _, kind := range []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition} {
				meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: no, Reason: "Unhealthy"})
			}
			if err := w.api.Status().Update(w.Context(), m); err != nil {
				w.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a")
			w.pooled("m")
			w.must("m")
			ill(w, w.owner("m"))
			var m *v1beta1.NstanceMachine
			for range 3 {
				m = w.must("m")
			}
			w.want(m, "Terminating", yes, "ReplacementAsked", "")
			w.want(m, "Ready", yes, "Running", "")
			if w.asks() != 1 || w.fleet.asked[0] != "delete "+poolID || !w.owner("m").DeletionTimestamp.IsZero() {
				t.Errorf("calls %v, the Machine is deleted %v", w.fleet.asked, w.owner("m").DeletionTimestamp)
			}
			w.fleet.set("a", poolID, func(i *nstancev1.InstanceStatus) {
				i.Phase, i.Drain = draining, &nstancev1.DrainStatus{Reason: "asked-to-be-replaced"}
			})
			w.want(w.must("m"), "Terminating", yes, "AskedToBeReplaced", "")
		})
	}
}

// A key names another instance when the one before it had failed. The tombstone of that one
// does not end the deletion of an object that never learned an id.
func TestADeletionByKeyIsNotEndedByATombstone(t *testing.T) {
	w := newWorld(t, "a")
	w.own("m", nil)
	w.restart(func(what string) (before, after error) {
		if strings.HasPrefix(what, "create") {
			after = errCrash
		}
		return nil, after
	})
	if _, err := w.pass("m"); err == nil {
		t.Fatal("nothing broke off")
	}
	w.restart(nil)
	first := w.fleet.all()[0]
	w.fleet.set("a", first.GetId(), func(i *nstancev1.InstanceStatus) { i.Phase = deleted })
	const second = "knd99999999999999999999999999"
	w.fleet.put("a", second, true, running)
	w.fleet.set("a", second, func(i *nstancev1.InstanceStatus) { i.IdempotencyKey = first.GetIdempotencyKey() })
	w.delete(w.get("m"))
	for range 3 {
		w.must("m")
	}
	if left := w.fleet.all(); len(left) > 0 || w.get("m") != nil {
		t.Errorf("left: %v, %v", w.get("m"), left)
	}
}
