package ondemand_test

import (
	"context"
	"crypto/rand"
	"fmt"
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

// run has this controller and that of NstanceMachines run in a manager, as in the
// operator, until the test or stop ends them.
func (w *world) run(shards *shardstest.World) (stop func()) {
	w.Helper()
	options := shared.Plane(w.T).ManagerOptions(w.ns)
	options.Cache.ByObject = w.kept()
	mgr, err := ctrl.NewManager(w.config, options)
	if err != nil {
		w.Fatal(err)
	}
	pods, err := workload.Local(w.Context(), mgr)
	if err != nil {
		w.Fatal(err)
	}
	made := &machine.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Shards: shards.Set,
		Recorder: &events.FakeRecorder{}, Random: rand.Reader, Now: time.Now,
	}
	asked := &ondemand.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Workload: pods, Recorder: mgr.GetEventRecorder("test"),
		Cluster: client.ObjectKey{Namespace: w.ns, Name: clusterName},
	}
	for _, r := range []interface{ SetupWithManager(ctrl.Manager) error }{made, asked} {
		if err := r.SetupWithManager(mgr); err != nil {
			w.Fatal(err)
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
				w.Errorf("the manager: %v", err)
			}
		}
	}
	w.Cleanup(stop)
	return stop
}

// kept is the cache of an operator, with this test's pods alone: other tests leave
// theirs behind.
func (w *world) kept() map[client.Object]cache.ByObject {
	all := workload.Cache()
	for o, how := range all {
		if _, pods := o.(*corev1.Pod); pods {
			how.Namespaces = map[string]cache.Config{w.pods: {}}
			all[o] = how
		}
	}
	return all
}

func (w *world) eventually(what string, check func() error) {
	w.Helper()
	planetest.Eventually(w, time.Minute, what, func(context.Context) error { return check() })
}

// ready waits until so many instances are ready, with a Machine each.
func (w *world) ready(want int) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d are ready", want), func() error {
		machines, infrastructures := w.made()
		ready := 0
		for _, i := range infrastructures {
			if meta.IsStatusConditionTrue(i.Status.Conditions, v1beta1.ConditionReady) {
				ready++
			}
		}
		if ready != want || len(infrastructures) != want || len(machines) != want {
			return fmt.Errorf("%d of %d NstanceMachines are, of %d Machines", ready, len(infrastructures), len(machines))
		}
		return nil
	})
}

func there(shard *shardstest.Shard) int {
	return len(slices.DeleteFunc(shard.Instances("web"), func(i *nstancev1.InstanceStatus) bool {
		return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
	}))
}

// instances waits until the shard has so many, and says what there is when it has not.
func (w *world) instances(shards *shardstest.World, want int) {
	w.Helper()
	shard := shards.Shard("a")
	w.eventually(fmt.Sprintf("the shard has %d instances", want), func() error {
		got := there(shard)
		if got == want {
			return nil
		}
		text := fmt.Sprintf("it has %d", got)
		machines, infrastructures := w.made()
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

func TestPodsComeAndGo(t *testing.T) {
	w := newWorld(t)
	shards := shardstest.Start(t, "a")
	shard := shards.Shard("a")
	shard.AddGroup("web", 0, "knd")
	shard.SetTiming(func(t *shardstest.Timing) { t.Drain = 0 })
	shards.Synced()
	stop := w.run(shards)

	first := w.pod("first", nil) // when it has come and gone, everything has begun
	w.instances(shards, 1)
	w.gone(first)
	w.instances(shards, 0)
	const count = 20
	var pods []*corev1.Pod
	var waits []time.Duration
	for n := range count {
		began := time.Now()
		pods = append(pods, w.pod(fmt.Sprintf("p%d", n), nil))
		w.instances(shards, n+1)
		waits = append(waits, time.Since(began))
	}
	slices.Sort(waits)
	t.Logf("from a pod to its instance: median %v, most %v", waits[count/2], waits[count-1])
	w.ready(count)
	if calls := len(shard.Calls("CreateInstance")); calls != count+1 {
		t.Errorf("%d calls for %d pods", calls, count)
	}

	// Some go while nobody looks, and some come.
	stop()
	for _, p := range pods[:5] {
		w.gone(p)
	}
	w.pod("late", nil)
	w.run(shards)
	w.ready(count - 4)

	// One is left by its annotation first.
	patch := client.MergeFrom(pods[5].DeepCopy())
	pods[5].Annotations = nil
	if err := w.api.Patch(t.Context(), pods[5], patch); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods[5:] {
		w.gone(p)
	}
	w.ready(1)
	w.instances(shards, 1)

	// What the instance of a pod that waits is lost, comes again.
	before, _ := w.made()
	for _, i := range shard.Instances("web") {
		if i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED {
			shard.Kill(i.GetId())
		}
	}
	w.eventually("the pod has another Machine", func() error {
		now, infrastructures := w.made()
		if len(now) == 1 && now[0].UID == before[0].UID && !now[0].DeletionTimestamp.IsZero() {
			return fmt.Errorf("it is being deleted")
		}
		if len(now) != 1 || now[0].UID == before[0].UID {
			return w.collect(infrastructures, now)
		}
		return nil
	})
	w.ready(1)
	if n := there(shard); n != 1 {
		t.Errorf("%d instances", n)
	}
}

// collect deletes what no Machine owns any more, as Kubernetes' garbage collector does,
// which doesn't run here.
func (w *world) collect(infrastructures []v1beta1.NstanceMachine, machines []clusterv1.Machine) error {
	for _, i := range infrastructures {
		owned := slices.ContainsFunc(machines, func(m clusterv1.Machine) bool { return m.Name == i.Name })
		if !owned && i.DeletionTimestamp.IsZero() {
			if err := w.api.Delete(w.Context(), &i); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("there are %d Machines and %d NstanceMachines", len(machines), len(infrastructures))
}

func TestARefusedPodIsTold(t *testing.T) {
	w := newWorld(t)
	shards := shardstest.Start(t, "a")
	shards.Synced()
	w.run(shards)
	pod := w.pod("wrong", func(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationOnDemandGroup] = "No" })
	w.eventually("an event says why", func() error {
		var all corev1.EventList
		if err := w.api.List(t.Context(), &all, client.InNamespace(w.pods)); err != nil {
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
