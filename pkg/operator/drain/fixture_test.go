package drain_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/drain"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	"github.com/nstance/nstance/pkg/operator/workload"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

const (
	shard = "one"
	group = "web"
	long  = 10 * time.Minute // a drain that does not reach its deadline
	soon  = 3 * time.Second  // shortens a drain that began with long, so that it reaches its deadline
)

// fixture is a shard with one instance, and an operator with the drain controller.
type fixture struct {
	t       *testing.T
	plane   *planetest.Plane
	ns      string
	shards  *shardstest.World
	shard   *shardstest.Shard
	id      string // the instance's
	node    *corev1.Node
	machine *clusterv1.Machine
	unowned bool          // Cluster API has not set the owner reference of the NstanceMachine yet
	cached  client.Reader // the operator's cache
	client  failingClient // the client that reads Machines
	ahead   atomic.Int64  // nanoseconds by which the operator's clock is ahead
}

// failingClient is a client whose lists fail while fail returns an error.
type failingClient struct {
	client.Client

	fail atomic.Pointer[func() error]
}

func (b *failingClient) List(ctx context.Context, all client.ObjectList, which ...client.ListOption) error {
	if fail := b.fail.Load(); fail != nil {
		if err := (*fail)(); err != nil {
			return err
		}
	}
	return b.Client.List(ctx, all, which...)
}

// newFixture returns a fixture. connect returns the connection to the workload cluster; nil:
// the operator's own cluster.
func newFixture(t *testing.T, connect func(ctrl.Manager, *fixture) (*workload.Cluster, error)) *fixture {
	t.Helper()
	f := &fixture{t: t, plane: shared.Plane(t), shards: shardstest.Start(t, shard)}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "drain-"}}
	f.create(ns)
	f.ns, f.shard = ns.Name, f.shards.Shard(shard)
	f.shard.AddGroup(group, 1, "default")
	f.shards.Synced()
	f.eventually("the instance runs", func() bool {
		all := f.shards.Set.Instances(shard, group)
		if len(all) != 1 || all[0].GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING {
			return false
		}
		f.id = all[0].GetId()
		return true
	})
	f.startOperator(connect)
	return f
}

// kubeconfig is the name of the Secret with the kubeconfig of an external workload cluster.
const kubeconfig = "c-kubeconfig"

func (f *fixture) startOperator(connect func(ctrl.Manager, *fixture) (*workload.Cluster, error)) {
	f.t.Helper()
	options := f.plane.ManagerOptions(f.ns)
	options.Cache.ByObject = workload.Cache()
	options.Cache.ByObject[&corev1.Secret{}] = cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", kubeconfig)}
	mgr, err := ctrl.NewManager(f.plane.AllowedNames(f.t, f.ns, map[string][]string{
		"example-cluster--default-kubeconfig": {kubeconfig},
	}, ".", "../workload"), options)
	f.must(err)
	f.cached, f.client.Client = mgr.GetClient(), mgr.GetClient()
	var w *workload.Cluster
	if connect != nil {
		w, err = connect(mgr, f)
	} else {
		w, err = workload.Local(f.t.Context(), mgr)
	}
	f.must(err)
	f.must((&drain.Reconciler{
		Client: &f.client, Namespace: f.ns, Shards: f.shards.Set, Workload: w,
		Recorder: mgr.GetEventRecorder("nstance-operator"),
		Now:      func() time.Time { return time.Now().Add(time.Duration(f.ahead.Load())) },
	}).SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("manager: %v", err)
		}
	})
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) create(o client.Object) {
	f.t.Helper()
	f.must(f.plane.Client.Create(f.t.Context(), o))
}

func (f *fixture) eventually(what string, holds func() bool) {
	f.t.Helper()
	shardstest.Eventually(f.t, what, holds)
}

// addNode creates the instance's Node.
func (f *fixture) addNode() {
	f.t.Helper()
	f.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + f.id}}
	f.node.Spec.ProviderID = f.shards.Set.Instance(shard, f.id).GetNodeProviderId()
	f.create(f.node)
}

// addMachine creates the instance's Machine and NstanceMachine.
func (f *fixture) addMachine(annotations map[string]string) {
	f.t.Helper()
	f.machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "m", Annotations: annotations}}
	f.machine.Spec.ClusterName = "c"
	f.machine.Spec.Bootstrap.DataSecretName = new("")
	f.machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1beta1.GroupVersion().Group, Kind: "NstanceMachine", Name: "m",
	}
	f.create(f.machine)
	infra := &v1beta1.NstanceMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "m"}}
	if !f.unowned {
		infra.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: f.machine.UID,
		}}
	}
	infra.Spec = v1beta1.NstanceMachineSpec{Group: group, Shard: shard, InstanceID: v1beta1.InstanceID(f.id)}
	f.create(infra)
	f.eventually("the operator's cache has the Machine", func() bool {
		return f.cached.Get(f.t.Context(), client.ObjectKeyFromObject(infra), infra) == nil &&
			f.cached.Get(f.t.Context(), client.ObjectKeyFromObject(f.machine), &clusterv1.Machine{}) == nil
	})
}

// setStatus changes the status of the instance's Node.
func (f *fixture) setStatus(change func(*corev1.NodeStatus)) {
	f.t.Helper()
	f.must(f.plane.Client.Get(f.t.Context(), client.ObjectKeyFromObject(f.node), f.node))
	change(&f.node.Status)
	f.must(f.plane.Client.Status().Update(f.t.Context(), f.node))
	f.plane.Cached(f.t, f.cached, f.node)
}

func (f *fixture) patchMachine(change func(*clusterv1.Machine)) {
	f.t.Helper()
	was := f.machine.DeepCopy()
	change(f.machine)
	f.must(f.plane.Client.Patch(f.t.Context(), f.machine, client.MergeFrom(was)))
}

// deleteMachine deletes the Machine, which remains until Cluster API's finalizer is removed.
func (f *fixture) deleteMachine() {
	f.t.Helper()
	f.patchMachine(func(m *clusterv1.Machine) { m.Finalizers = []string{clusterv1.MachineFinalizer} })
	f.must(f.plane.Client.Delete(f.t.Context(), f.machine))
	f.eventually("the operator's cache has the Machine's deletion", func() bool {
		var m clusterv1.Machine
		return f.cached.Get(f.t.Context(), client.ObjectKeyFromObject(f.machine), &m) == nil && !m.DeletionTimestamp.IsZero()
	})
}

// addPod creates a running pod on the node.
func (f *fixture) addPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	f.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name, Labels: map[string]string{"app": name}}}
	p.Spec = corev1.PodSpec{NodeName: f.node.Name, Containers: []corev1.Container{{Name: "c", Image: "none"}}}
	for _, c := range change {
		c(p)
	}
	f.create(p)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	f.must(f.plane.Client.Status().Update(f.t.Context(), p))
	return p
}

// addBudget creates a PodDisruptionBudget for the pods of an app. Tests set its status, because
// no controller does.
func (f *fixture) addBudget(app string, allowed int32) *policyv1.PodDisruptionBudget {
	f.t.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: app + "-budget"}}
	b.Spec.MinAvailable = new(intstr.FromInt32(1))
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	f.create(b)
	f.allow(b, allowed)
	return b
}

func (f *fixture) allow(b *policyv1.PodDisruptionBudget, allowed int32) {
	f.t.Helper()
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, DisruptionsAllowed: allowed, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1,
	}
	f.must(f.plane.Client.Status().Update(f.t.Context(), b))
}

// drain starts a drain of the instance, or shortens it.
func (f *fixture) drain(in time.Duration) { f.shard.Drain(f.id, "expired", time.Now().Add(in)) }

// drainAnother switches to another instance, and drains it with a pod on its node.
func (f *fixture) drainAnother() {
	f.t.Helper()
	f.eventually("there is another instance", func() bool {
		for _, i := range f.shards.Set.Instances(shard, group) {
			if i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING {
				f.id = i.GetId()
				return true
			}
		}
		return false
	})
	f.addNode()
	p := f.addPod("on-" + f.id)
	f.drain(long)
	f.eventually("the other pod is evicted", func() bool { return f.evicted(p) })
	f.removePod(p)
	f.eventually("the other drain is acknowledged", f.acknowledged)
}

// acknowledged reports whether the shard got the acknowledgement.
func (f *fixture) acknowledged() bool { return f.shard.Instance(f.id).GetDrain().GetAckedAt() != nil }

func (f *fixture) cordoned() bool {
	f.t.Helper()
	var n corev1.Node
	f.must(f.plane.Client.Get(f.t.Context(), client.ObjectKeyFromObject(f.node), &n))
	return n.Spec.Unschedulable
}

// evicted reports whether a pod terminates or is gone.
func (f *fixture) evicted(p *corev1.Pod) bool {
	f.t.Helper()
	var now corev1.Pod
	err := f.plane.Client.Get(f.t.Context(), client.ObjectKeyFromObject(p), &now)
	f.must(client.IgnoreNotFound(err))
	return err != nil || now.DeletionTimestamp != nil
}

// removePod removes a terminating pod, as the kubelet does.
func (f *fixture) removePod(p *corev1.Pod) {
	f.t.Helper()
	f.must(client.IgnoreNotFound(f.plane.Client.Delete(f.t.Context(), p, client.GracePeriodSeconds(0))))
}

// events returns the notes of all events with a reason, by the kind of their object.
func (f *fixture) events(reason string) map[string][]string {
	f.t.Helper()
	found := map[string][]string{}
	for _, ns := range []string{f.ns, metav1.NamespaceDefault} {
		var all eventsv1.EventList
		f.must(f.plane.Client.List(f.t.Context(), &all, client.InNamespace(ns)))
		for _, e := range all.Items {
			if e.Reason == reason && (ns == f.ns || f.node != nil && e.Regarding.Name == f.node.Name) {
				found[e.Regarding.Kind] = append(found[e.Regarding.Kind], e.Note)
			}
		}
	}
	return found
}

// awaitEvents waits until each of the kinds has one event with a reason, whose note contains
// all parts.
func (f *fixture) awaitEvents(reason string, parts []string, kinds ...string) {
	f.t.Helper()
	f.eventually("events "+reason, func() bool {
		all := f.events(reason)
		for _, k := range kinds {
			if len(all[k]) == 0 {
				return false
			}
		}
		return true
	})
	for kind, notes := range f.events(reason) {
		if len(notes) != 1 {
			f.t.Errorf("events %s on %s: %q, want one", reason, kind, notes)
		}
		for _, p := range parts {
			if !strings.Contains(notes[0], p) {
				f.t.Errorf("event %s on %s: %q, want %q in it", reason, kind, notes[0], p)
			}
		}
	}
}
