package machine_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestStaleCacheMakesNoPass: while the cache shows an object as it was before the controller's own
// writes, nothing is called or written. What others wrote later is acted on.
func TestStaleCacheMakesNoPass(t *testing.T) {
	f := newFixture(t, "a")
	f.createMachine("m", nil)
	before := f.get("m")
	f.mustReconcile("m")
	f.writes = nil
	f.staleMachine = before
	for range 3 {
		result, err := f.reconcile("m")
		if err != nil || result.RequeueAfter == 0 || len(f.writes) > 0 || len(f.calls()) != 1 {
			t.Fatalf("on the object before: %+v, %v, writes %v, calls %v; want none, and another pass later", result, err, f.writes, f.calls())
		}
	}
	f.staleMachine = nil
	m := f.mustReconcile("m")
	f.wantCondition(m, "Ready", yes, "Running", "")

	metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.PausedAnnotation, "")
	if err := f.api.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	f.wantCondition(f.mustReconcile("m"), "Paused", yes, "Paused", "")
}

// TestStaleCacheOfEarlierObject: a recreated object is not mistaken for the one that it replaces.
func TestStaleCacheOfEarlierObject(t *testing.T) {
	f := newFixture(t, "a")
	tried := 0
	f.restart(func(string) (error, error) { tried++; return nil, nil })
	f.createMachine("m", nil)
	before := f.get("m")
	f.mustReconcile("m")
	tried = 0
	other := before.DeepCopy()
	other.UID = "another"
	f.staleMachine = other
	if _, err := f.reconcile("m"); err != nil || tried == 0 {
		t.Errorf("%d calls, %v; want those of a pass", tried, err)
	}
}

// TestWritesOfPodsMachine: what the controller for pods creates needs one write for the
// instance, one for its provider ID, and one for the status, and none while its Machine is about to
// be created.
func TestWritesOfPodsMachine(t *testing.T) {
	f := newFixture(t, "a")
	nm := &v1beta1.NstanceMachine{ObjectMeta: f.meta("pod"), Spec: v1beta1.NstanceMachineSpec{
		Group: "web", Shard: "a", IdempotencyKey: "nsm-0123456789abcdef0123456789abcdef",
	}}
	nm.Labels[v1beta1.LabelPodUID], nm.Finalizers = "some-uid", []string{v1beta1.Finalizer}
	f.create(nm)
	if result, err := f.reconcile("pod"); err != nil || result.RequeueAfter == 0 || len(f.writes) > 0 {
		t.Fatalf("without a Machine: %+v, %v, writes %v; want none, and another pass later", result, err, f.writes)
	}
	m := &clusterv1.Machine{ObjectMeta: f.meta("pod"), Spec: clusterv1.MachineSpec{
		ClusterName: clusterName, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceMachine", Name: "pod"},
	}}
	f.create(m)
	got := f.mustReconcile("pod")
	f.wantCondition(got, "Ready", yes, "Running", "")
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != m.UID {
		t.Errorf("owners %v, want the Machine", got.OwnerReferences)
	}
	want := []string{"patch *v1beta1.NstanceMachine", "patch *v1beta1.NstanceMachine", "status *v1beta1.NstanceMachine"}
	if !slices.Equal(f.writes, want) {
		t.Errorf("writes %q, want %q", f.writes, want)
	}

	f.create(&v1beta1.NstanceMachine{ObjectMeta: func() metav1.ObjectMeta {
		m := f.meta("alone")
		m.Labels[v1beta1.LabelPodUID] = "other-uid"
		return m
	}(), Spec: v1beta1.NstanceMachineSpec{Group: "web"}})
	f.now = f.now.Add(10 * time.Second)
	f.wantCondition(f.mustReconcile("alone"), "Ready", no, "WaitingForMachine", "")
}
