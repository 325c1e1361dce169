package ondemand_test

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/machine"
	"github.com/nstance/nstance/pkg/operator/ondemand"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	"github.com/nstance/nstance/pkg/operator/workload"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

var _ ondemand.Workload = (*workload.Cluster)(nil)

// run runs this controller and that of NstanceMachines in a manager, as in the operator, until the
// test or stop ends them.
func (f *fixture) run(shards *shardstest.World) (stop func()) {
	f.Helper()
	f.live = true
	options := shared.Plane(f.T).ManagerOptions(f.ns)
	options.Cache.ByObject = f.cacheByObject()
	mgr, err := ctrl.NewManager(f.config, options)
	if err != nil {
		f.Fatal(err)
	}
	cluster, err := workload.Local(f.Context(), mgr)
	if err != nil {
		f.Fatal(err)
	}
	pods := &ondemand.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Workload: cluster, Recorder: mgr.GetEventRecorder("test"),
		Cluster: client.ObjectKey{Namespace: f.ns, Name: clusterName}, Shards: shards.Set, Tenant: "default", Now: time.Now, Random: rand.Reader,
	}
	machines := &machine.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Shards: shards.Set,
		Recorder: &events.FakeRecorder{}, Random: rand.Reader,
		Jitter: mathrand.Float64, Pods: pods, Now: time.Now,
	}
	for _, r := range []interface{ SetupWithManager(ctrl.Manager) error }{machines, pods} {
		if err := r.SetupWithManager(mgr); err != nil {
			f.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				f.Errorf("manager: %v", err)
			}
		}
	}
	f.Cleanup(stop)
	return stop
}

// cacheByObject returns the options of an operator's cache, limited to this test's pods,
// because pods of other tests remain.
func (f *fixture) cacheByObject() map[client.Object]cache.ByObject {
	all := workload.Cache()
	for o, how := range all {
		if _, pods := o.(*corev1.Pod); pods {
			how.Namespaces = map[string]cache.Config{f.pods: {}}
			all[o] = how
		}
	}
	return all
}

func (f *fixture) eventually(what string, check func() error) {
	f.Helper()
	planetest.Eventually(f, planetest.Patience, what, func(context.Context) error { return check() })
}

// awaitReady waits until that many instances are ready, with a Machine each.
func (f *fixture) awaitReady(want int) {
	f.Helper()
	f.eventually(fmt.Sprintf("%d instances are ready", want), func() error {
		machines, infrastructures := f.objects()
		ready := 0
		for _, i := range infrastructures {
			if meta.IsStatusConditionTrue(i.Status.Conditions, v1beta1.ConditionReady) {
				ready++
			}
		}
		if ready != want || len(infrastructures) != want || len(machines) != want {
			return fmt.Errorf("%d of %d NstanceMachines are ready, %d Machines", ready, len(infrastructures), len(machines))
		}
		return nil
	})
}

func countInstances(shard *shardstest.Shard) int {
	return len(slices.DeleteFunc(shard.Instances("web"), func(i *nstancev1.InstanceStatus) bool {
		return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
	}))
}

// awaitInstances waits until the shard has that many instances, and prints the state if it does
// not.
func (f *fixture) awaitInstances(shards *shardstest.World, want int) {
	f.Helper()
	shard := shards.Shard("a")
	f.eventually(fmt.Sprintf("the shard has %d instances", want), func() error {
		got := countInstances(shard)
		if got == want {
			return nil
		}
		text := fmt.Sprintf("it has %d", got)
		machines, infrastructures := f.objects()
		for _, m := range machines {
			text += fmt.Sprintf("\nMachine %s: deleted at %v, %v", m.Name, m.DeletionTimestamp, m.Status.Conditions)
		}
		for _, i := range infrastructures {
			text += fmt.Sprintf("\nNstanceMachine %s: deleted at %v, %v, %+v, %v",
				i.Name, i.DeletionTimestamp, i.Finalizers, i.Spec, i.Status.Conditions)
		}
		state, _ := shards.Set.State("a")
		return fmt.Errorf("%s\nthe shard: %+v\nits instances: %v", text, state, shard.Instances("web"))
	})
}

func TestMachinesFollowPods(t *testing.T) {
	f := newFixture(t)
	shards := f.shards
	shard := shards.Shard("a")
	shard.SetTiming(func(t *shardstest.Timing) { t.Drain = 0 })
	shards.Synced()
	stop := f.run(shards)

	first := f.pod("first", nil) // its creation and deletion show that the controllers have started
	f.awaitInstances(shards, 1)
	f.delete(first)
	f.awaitInstances(shards, 0)
	const count = 20
	var pods []*corev1.Pod
	var waits []time.Duration
	for n := range count {
		began := time.Now()
		pods = append(pods, f.pod(fmt.Sprintf("p%d", n), nil))
		f.awaitInstances(shards, n+1)
		waits = append(waits, time.Since(began))
	}
	slices.Sort(waits)
	t.Logf("from a pod to its instance: median %v, maximum %v", waits[count/2], waits[count-1])
	f.awaitReady(count)
	// A create may be repeated, with the same key, if the cache is stale about its result.
	keys := map[string]bool{}
	for _, call := range shard.Calls("CreateInstance") {
		keys[call.(*nstancev1.CreateInstanceRequest).GetIdempotencyKey()] = true
	}
	if len(keys) != count+1 {
		t.Errorf("%d keys for %d pods", len(keys), count+1)
	}

	// While the operator is stopped, pods are deleted and created.
	stop()
	for _, p := range pods[:5] {
		f.delete(p)
	}
	f.pod("late", nil)
	f.run(shards)
	f.awaitReady(count - 4)

	// One pod loses its annotation before its deletion.
	patch := client.MergeFrom(pods[5].DeepCopy())
	pods[5].Annotations = nil
	if err := f.api.Patch(t.Context(), pods[5], patch); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods[5:] {
		f.delete(p)
	}
	f.awaitReady(1)
	f.awaitInstances(shards, 1)

	// The instance of a waiting pod is replaced after its death.
	before, _ := f.objects()
	for _, i := range shard.Instances("web") {
		if i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED {
			shard.Kill(i.GetId())
		}
	}
	f.eventually("the pod has another Machine", func() error {
		now, infrastructures := f.objects()
		if len(now) == 1 && now[0].UID == before[0].UID && !now[0].DeletionTimestamp.IsZero() {
			return fmt.Errorf("it is being deleted")
		}
		if len(now) != 1 || now[0].UID == before[0].UID {
			return f.collect(infrastructures, now)
		}
		return nil
	})
	f.awaitReady(1)
	if n := countInstances(shard); n != 1 {
		t.Errorf("%d instances", n)
	}
}

// collect deletes objects whose owner is gone, as the garbage collector does, which does not
// run here.
func (f *fixture) collect(infrastructures []v1beta1.NstanceMachine, machines []clusterv1.Machine) error {
	for _, i := range infrastructures {
		owned := slices.ContainsFunc(machines, func(m clusterv1.Machine) bool { return m.Name == i.Name })
		if !owned && i.DeletionTimestamp.IsZero() {
			if err := f.api.Delete(f.Context(), &i); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%d Machines and %d NstanceMachines", len(machines), len(infrastructures))
}

func TestRefusedPodGetsEvent(t *testing.T) {
	f := newFixture(t)
	f.run(f.shards)
	pod := f.pod("wrong", func(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationOnDemandGroup] = "No" })
	f.eventually("an event gives the reason", func() error {
		var all corev1.EventList
		if err := f.api.List(t.Context(), &all, client.InNamespace(f.pods)); err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.InvolvedObject.UID == pod.UID && e.Reason == "OnDemandRefused" && e.InvolvedObject.Kind == "Pod" {
				return nil
			}
		}
		return fmt.Errorf("events %+v", all.Items)
	})
}
