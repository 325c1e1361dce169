package ondemand_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/ondemand"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestGroupWithoutPolicyRefusesPods: pods of any namespace, gated or not, get no machines of a
// group without a policy, and an event names the missing setting.
func TestGroupWithoutPolicyRefusesPods(t *testing.T) {
	w := newFakeCluster(t, "a")
	w.namespace("any", nil)
	o := w.operator("default")
	for n := range 60 {
		w.pod("any", fmt.Sprintf("held-%d", n), gated, largest)
		w.pod("any", fmt.Sprintf("free-%d", n), largest)
		for range 2 {
			if after := o.reconcile("any", fmt.Sprintf("free-%d", n)); after <= 0 {
				t.Fatal("a refused pod is not requeued")
			}
			o.reconcile("any", fmt.Sprintf("held-%d", n))
		}
	}
	w.wantMachines("pods of any namespace", "default", 0)
	if events := o.takeEvents(); strings.Count(events, "OnDemandRefused") != 60 || !strings.Contains(events, "set its on_demand") {
		t.Errorf("events %.1000s", events)
	}
}

// TestPolicyFields: each field of a policy counts, and the event names the one that refuses.
func TestPolicyFields(t *testing.T) {
	policy := &nstancev1.OnDemand{
		Namespaces: []string{"ci"}, NamespaceLabels: map[string]string{"team": "a", "env": "dev"}, InstanceTypes: []string{"large"}, Max: 5,
	}
	ofType := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationOnDemandInstanceType] = name }
	}
	for name, c := range map[string]struct {
		namespace string
		labels    map[string]string
		pod       func(*corev1.Pod)
		refused   string
	}{
		"namespace listed":                 {namespace: "ci"},
		"namespace with the labels":        {namespace: "x", labels: map[string]string{"team": "a", "env": "dev", "more": ""}},
		"namespace with one of the labels": {namespace: "x", labels: map[string]string{"team": "a"}, refused: "on_demand.namespaces"},
		"namespace with other label values": {
			namespace: "x", labels: map[string]string{"team": "b", "env": "dev"}, refused: "on_demand.namespace_labels",
		},
		"other namespace":      {namespace: "cii", refused: "allows pods of Namespace cii no instances"},
		"instance type listed": {namespace: "ci", pod: ofType("large")},
		"instance type not listed": {
			namespace: "ci", pod: ofType("huge"),
			refused: `instance type "huge" is neither the group's own nor one of its on_demand.instance_types (allowed: large)`,
		},
		"unknown group": {namespace: "ci", pod: func(p *corev1.Pod) {
			p.Annotations[v1beta1.AnnotationOnDemandGroup] = "wbe"
		}, refused: "no instance of group wbe: shard a: the shard has no such group"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, "a")
			w.allow("a", policy)
			w.namespace(c.namespace, c.labels)
			w.pod(c.namespace, "job", func(p *corev1.Pod) {
				if c.pod != nil {
					c.pod(p)
				}
			})
			o := w.operator("default")
			o.reconcile(c.namespace, "job")
			events, all := o.takeEvents(), w.machines("default")
			switch {
			case c.refused != "" && (len(all) > 0 || !strings.Contains(events, "OnDemandRefused") || !strings.Contains(events, c.refused)):
				t.Errorf("%d Machines, events %q", len(all), events)
			case c.refused == "" && (len(all) != 1 || all[0].Spec.PodNamespace != c.namespace || all[0].Spec.Shard != "a"):
				t.Errorf("Machines %+v, events %q", all, events)
			}
		})
	}
}

// TestHeldPodGetsNoMachine: a pod is held while it has scheduling gates, or its Job is
// suspended.
func TestHeldPodGetsNoMachine(t *testing.T) {
	w := newFakeCluster(t, "a")
	w.allow("a", anywhere(5))
	w.namespace("ci", nil)
	o := w.operator("default")
	pod := w.pod("ci", "gated", gated)
	for range 2 {
		o.reconcile("ci", "gated")
	}
	w.wantMachines("gated", "default", 0)
	if events := o.takeEvents(); strings.Count(events, "OnDemandHeld") != 1 ||
		!strings.Contains(events, "spec.schedulingGates example.com/queue") {
		t.Errorf("events %q", events)
	}
	pod.Spec.SchedulingGates = nil
	if err := w.api.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	o.reconcile("ci", "gated")
	w.wantMachines("without gates", "default", 1)

	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "j"}, Spec: batchv1.JobSpec{Suspend: new(true)}}
	w.create(job)
	w.pod("ci", "of-a-job", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	})
	o.reconcile("ci", "of-a-job")
	w.wantMachines("Job suspended", "default", 1)
	if events := o.takeEvents(); !strings.Contains(events, "spec.suspend of Job j") {
		t.Errorf("events %q", events)
	}
	job.Spec.Suspend = new(false)
	if err := w.api.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	o.reconcile("ci", "of-a-job")
	w.wantMachines("Job resumed", "default", 2)
}

// TestTenantOfNamespace: of several operators in a cluster, the one of the tenant in the
// Namespace's label handles a pod; without a label, that of tenant default.
func TestTenantOfNamespace(t *testing.T) {
	w := newFakeCluster(t, "a")
	w.allow("a", anywhere(50))
	w.namespace("plain", nil)
	w.namespace("empty", map[string]string{v1beta1.LabelTenant: ""})
	w.namespace("ours", map[string]string{v1beta1.LabelTenant: "default"})
	w.namespace("blues", map[string]string{v1beta1.LabelTenant: "blue"})
	w.namespace("reds", map[string]string{v1beta1.LabelTenant: "red"})
	operators := []*operator{w.operator("default"), w.operator("blue")}
	for _, namespace := range []string{"plain", "empty", "ours", "blues", "reds"} {
		w.pod(namespace, "job")
		w.pod(namespace, "wrong", func(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationOnDemandGroup] = "No Group" })
		for _, o := range operators {
			o.reconcile(namespace, "job")
			o.reconcile(namespace, "wrong")
		}
	}
	for tenant, want := range map[string]string{"default": "plain empty ours", "blue": "blues"} {
		for _, m := range w.machines(tenant) {
			if !strings.Contains(want, m.Spec.PodNamespace) {
				t.Errorf("tenant %s has a Machine for a pod of %s", tenant, m.Spec.PodNamespace)
			}
		}
	}
	w.wantMachines("tenant default", "default", 3)
	w.wantMachines("tenant blue", "blue", 1)
	for n, want := range []int{3, 1} {
		if events := operators[n].takeEvents(); strings.Count(events, "want the name of a group") != want {
			t.Errorf("operator %d: events %s", n, events)
		}
	}
}

// TestTenantWithoutOperator: a pod that has waited for long and is for another tenant's operator has an
// event of that, once; nothing is asked for it. One that runs has none.
func TestTenantWithoutOperator(t *testing.T) {
	w := newFakeCluster(t, "a")
	w.allow("a", anywhere(50))
	w.namespace("reds", map[string]string{v1beta1.LabelTenant: "red"})
	w.namespace("plain", nil)
	old := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)) }
	w.pod("reds", "new", func(p *corev1.Pod) { p.CreationTimestamp = metav1.Now() })
	w.pod("reds", "old", old)
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	w.pod("reds", "bound", old, func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	w.pod("reds", "done", old, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	w.pod("reds", "held", old, func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/queue"}}
	})
	w.pod("plain", "old", old)
	o, blue := w.operator("default"), w.operator("blue")
	for range 2 {
		for name, again := range map[string]bool{"new": true, "old": true, "held": true, "bound": false, "done": false} {
			if after := o.reconcile("reds", name); (after > 0) != again {
				t.Errorf("%s is looked at again after %s", name, after)
			}
		}
		blue.reconcile("plain", "old")
	}
	w.wantMachines("another tenant's pods", "default", 0)
	w.wantMachines("another tenant's pods", "blue", 0)
	if events := o.takeEvents(); strings.Count(events, "OnDemand") != 1 ||
		!strings.Contains(events, "is for the operator of tenant red, by its label nstance.dev/tenant, and this one is of tenant default") {
		t.Errorf("events %s", events)
	}
	if events := blue.takeEvents(); strings.Count(events, "OnDemand") != 1 ||
		!strings.Contains(events, "is for the operator of tenant default, by the lack of the label nstance.dev/tenant") {
		t.Errorf("events %s", events)
	}
}

// reconcileAll reconciles pods concurrently.
func (o *operator) reconcileAll(namespace string, names []string) {
	o.cluster.Helper()
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() { o.reconcile(namespace, name) })
	}
	all.Wait()
}

// TestMaxInstances: of concurrent pods, while no cache shows the objects created for them, only
// as many as the limit get a Machine. The next process counts the same. When one is deleted, a
// waiting pod gets its place.
func TestMaxInstances(t *testing.T) {
	w := newFakeCluster(t, "a")
	policy := anywhere(5)
	policy.MaxPerNamespace = 3
	w.allow("a", policy)
	names := map[string][]string{}
	for _, namespace := range []string{"ci", "web"} {
		w.namespace(namespace, nil)
		for n := range 20 {
			names[namespace] = append(names[namespace], fmt.Sprintf("p%d", n))
			w.pod(namespace, names[namespace][n])
		}
	}
	o := w.operator("default")
	w.stale.Store(true)
	o.reconcileAll("ci", names["ci"])
	w.wantMachines("one namespace", "default", 3)
	if events := o.takeEvents(); strings.Count(events, "on_demand.max_per_namespace of 3 instances") != 17 {
		t.Errorf("events %s", events)
	}
	o.reconcileAll("web", names["web"])
	o.reconcileAll("ci", names["ci"])
	w.wantMachines("both namespaces", "default", 5)
	if events := o.takeEvents(); strings.Count(events, "on_demand.max of 5 instances") < 18 {
		t.Errorf("events %s", events)
	}

	w.stale.Store(false)
	o = w.operator("default")
	o.reconcileAll("web", names["web"])
	o.reconcileAll("ci", names["ci"])
	w.wantMachines("next process", "default", 5)

	for _, m := range w.machines("default") {
		if m.Spec.PodNamespace != "web" {
			continue
		}
		m.Finalizers = nil // its controller's work is done
		if err := w.api.Update(t.Context(), &m); err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(m.Annotations[ondemand.AnnotationPod], "/")
		for _, gone := range []client.Object{
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}}, &m,
			&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}},
		} {
			if err := w.api.Delete(t.Context(), gone); err != nil {
				t.Fatal(err)
			}
		}
		o.reconcile("web", name)
		break
	}
	w.wantMachines("after a deletion", "default", 4)
	o.reconcileAll("web", names["web"])
	w.wantMachines("a waiting pod takes the place", "default", 5)
}

// TestInstancesOfShardCount: on-demand instances without a pod, or of an operator whose objects
// are gone, count too; an instance with a Machine counts only once.
func TestInstancesOfShardCount(t *testing.T) {
	w := newFakeCluster(t, "a")
	w.allow("a", anywhere(3))
	w.namespace("ci", nil)
	for _, namespace := range []string{"", "ci"} {
		request := &nstancev1.CreateInstanceRequest{Group: "web", Namespace: namespace}
		if _, err := w.shards.Set.CreateInstance(t.Context(), "a", request); err != nil {
			t.Fatal(err)
		}
	}
	o := w.operator("default")
	w.pod("ci", "first")
	o.reconcile("ci", "first")
	w.wantMachines("one besides the two instances", "default", 1)
	m := w.machines("default")[0]
	made, err := w.shards.Set.CreateInstance(t.Context(), "a", &nstancev1.CreateInstanceRequest{
		Group: "web", Namespace: "ci", IdempotencyKey: "key-of-first",
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Spec.IdempotencyKey = "key-of-first"
	if err := w.api.Update(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	w.pod("ci", "second")
	o.reconcile("ci", "second")
	w.wantMachines("at the limit", "default", 1)
	w.allow("a", anywhere(4))
	o.reconcile("ci", "second")
	w.wantMachines("a Machine and its instance count once", "default", 2)
	if made.GetNamespace() != "ci" {
		t.Errorf("the instance is %v", made)
	}
}

// TestLimitsOfShards: pods get instances on the shards whose group allows it, within each
// shard's limit.
func TestLimitsOfShards(t *testing.T) {
	w := newFakeCluster(t, "a", "b", "c")
	w.allow("b", anywhere(2))
	w.allow("c", anywhere(3))
	w.namespace("ci", nil)
	o := w.operator("default")
	for n := range 8 {
		w.pod("ci", fmt.Sprintf("p%d", n))
		o.reconcile("ci", fmt.Sprintf("p%d", n))
	}
	on := map[string]int{}
	for _, m := range w.machines("default") {
		on[string(m.Spec.Shard)]++
	}
	if on["a"] != 0 || on["b"] != 2 || on["c"] != 3 {
		t.Errorf("the Machines are on %v", on)
	}
	events := o.takeEvents()
	for _, want := range []string{
		"shard a: the group allows pods no instances", "shard b: the group has reached its on_demand.max of",
		"shard c: the group has reached its on_demand.max of",
	} {
		if !strings.Contains(events, want) {
			t.Errorf("events %s, want one with %q", events, want)
		}
	}
}

// TestRemovedPolicy: a pod with a Machine keeps it, and a later pod gets none.
func TestRemovedPolicy(t *testing.T) {
	w := newFakeCluster(t, "a")
	w.allow("a", anywhere(3))
	w.namespace("ci", nil)
	o := w.operator("default")
	w.pod("ci", "first")
	o.reconcile("ci", "first")
	w.allow("a", nil)
	w.pod("ci", "second")
	for _, name := range []string{"first", "second"} {
		o.reconcile("ci", name)
	}
	w.wantMachines("policy removed", "default", 1)
	w.allow("a", anywhere(3))
	o.reconcile("ci", "second")
	w.wantMachines("policy restored", "default", 2)
}

// TestShardWithoutSnapshot: a pod is not refused before the shard's state is known.
func TestShardWithoutSnapshot(t *testing.T) {
	w := newFakeCluster(t, "a")
	w.shards = shardstest.New(t, nil, "a") // no Set follows it
	w.namespace("ci", nil)
	w.pod("ci", "job")
	o := w.operator("default")
	if after := o.reconcile("ci", "job"); after <= 0 || after > 10*time.Second || o.takeEvents() != "" {
		t.Errorf("requeue after %v, or an event", after)
	}
	w.wantMachines("unknown shard", "default", 0)
}

// TestRemovedAnnotationFreesReservation: a reservation that could not be used is freed when the
// pod's annotation is removed.
func TestRemovedAnnotationFreesReservation(t *testing.T) {
	w := newFakeCluster(t, "a")
	w.allow("a", anywhere(1))
	w.namespace("ci", nil)
	first := w.pod("ci", "first")
	w.pod("ci", "second")
	o := w.operator("default")
	w.quota.Store(true)
	o.reconcile("ci", "first")
	w.quota.Store(false)
	o.reconcile("ci", "second")
	w.wantMachines("with the first pod's annotation", "default", 0)
	first.Annotations = nil
	if err := w.api.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	o.reconcile("ci", "first")
	o.reconcile("ci", "second")
	w.wantMachines("without the first pod's annotation", "default", 1)
}
