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
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
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
	long  = 10 * time.Minute // for a drain that is not to end by its time
)

// room is a shard with one instance, and an operator that drains.
type room struct {
	t       *testing.T
	plane   *planetest.Plane
	ns      string
	world   *shardstest.World
	shard   *shardstest.Shard
	id      string // the instance's
	node    *corev1.Node
	machine *clusterv1.Machine
	cached  client.Reader // what the operator sees
	client  broken        // what it reads Machines with
}

// broken is a client whose lists fail while fail, if there is one, says so.
type broken struct {
	client.Client

	fail atomic.Pointer[func() error]
}

func (b *broken) List(ctx context.Context, all client.ObjectList, which ...client.ListOption) error {
	if fail := b.fail.Load(); fail != nil {
		if err := (*fail)(); err != nil {
			return err
		}
	}
	return b.Client.List(ctx, all, which...)
}

// newRoom makes a room whose workload cluster is made by ways; nil: it is the plane.
func newRoom(t *testing.T, ways func(ctrl.Manager, *room) (*workload.Cluster, error)) *room {
	t.Helper()
	r := &room{t: t, plane: shared.Plane(t), world: shardstest.Start(t, shard)}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "drain-"}}
	r.create(ns)
	r.ns, r.shard = ns.Name, r.world.Shard(shard)
	r.shard.AddGroup(group, 1, "default")
	r.world.Synced()
	r.eventually("the instance runs", func() bool {
		all := r.world.Set.Instances(shard, group)
		if len(all) != 1 || all[0].GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING {
			return false
		}
		r.id = all[0].GetId()
		return true
	})
	r.operate(ways)
	return r
}

func (r *room) operate(ways func(ctrl.Manager, *room) (*workload.Cluster, error)) {
	r.t.Helper()
	options := r.plane.ManagerOptions(r.ns)
	options.Cache.ByObject = workload.Cache()
	mgr, err := ctrl.NewManager(r.plane.Allowed(r.t, r.ns, ".", "../workload"), options)
	r.must(err)
	r.cached, r.client.Client = mgr.GetClient(), mgr.GetClient()
	var w *workload.Cluster
	if ways != nil {
		w, err = ways(mgr, r)
	} else {
		w, err = workload.Local(r.t.Context(), mgr)
	}
	r.must(err)
	r.must((&drain.Reconciler{
		Client: &r.client, Namespace: r.ns, Shards: r.world.Set, Workload: w,
		Recorder: mgr.GetEventRecorder("nstance-operator"), Now: time.Now,
	}).SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the manager ended: %v", err)
		}
	})
}

func (r *room) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *room) create(o client.Object) {
	r.t.Helper()
	r.must(r.plane.Client.Create(r.t.Context(), o))
}

func (r *room) eventually(what string, holds func() bool) {
	r.t.Helper()
	shardstest.Eventually(r.t, what, holds)
}

// addNode makes the instance's Node.
func (r *room) addNode() {
	r.t.Helper()
	r.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + r.id}}
	r.node.Spec.ProviderID = r.world.Set.Instance(shard, r.id).GetNodeProviderId()
	r.create(r.node)
}

// addMachine makes the Machine and the NstanceMachine that stand for the instance.
func (r *room) addMachine(annotations map[string]string) {
	r.t.Helper()
	r.machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "m", Annotations: annotations}}
	r.machine.Spec.ClusterName = "c"
	r.machine.Spec.Bootstrap.DataSecretName = new("")
	r.machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: v1beta1.GroupVersion().Group, Kind: "NstanceMachine", Name: "m",
	}
	r.create(r.machine)
	infra := &v1beta1.NstanceMachine{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "m"}}
	infra.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: r.machine.UID,
	}}
	infra.Spec = v1beta1.NstanceMachineSpec{Group: group, Shard: shard, InstanceID: v1beta1.InstanceID(r.id)}
	r.create(infra)
	r.eventually("the operator knows the Machine", func() bool {
		return r.cached.Get(r.t.Context(), client.ObjectKeyFromObject(infra), infra) == nil &&
			r.cached.Get(r.t.Context(), client.ObjectKeyFromObject(r.machine), &clusterv1.Machine{}) == nil
	})
}

func (r *room) patchMachine(change func(*clusterv1.Machine)) {
	r.t.Helper()
	was := r.machine.DeepCopy()
	change(r.machine)
	r.must(r.plane.Client.Patch(r.t.Context(), r.machine, client.MergeFrom(was)))
}

// deleteMachine deletes the Machine, which stays for Cluster API's finalizer.
func (r *room) deleteMachine() {
	r.t.Helper()
	r.patchMachine(func(m *clusterv1.Machine) { m.Finalizers = []string{clusterv1.MachineFinalizer} })
	r.must(r.plane.Client.Delete(r.t.Context(), r.machine))
	r.eventually("the operator knows that the Machine is being deleted", func() bool {
		var m clusterv1.Machine
		return r.cached.Get(r.t.Context(), client.ObjectKeyFromObject(r.machine), &m) == nil && !m.DeletionTimestamp.IsZero()
	})
}

// addPod has a pod run on the node.
func (r *room) addPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	r.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: name, Labels: map[string]string{"app": name}}}
	p.Spec = corev1.PodSpec{NodeName: r.node.Name, Containers: []corev1.Container{{Name: "c", Image: "none"}}}
	for _, c := range change {
		c(p)
	}
	r.create(p)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	r.must(r.plane.Client.Status().Update(r.t.Context(), p))
	return p
}

// addBudget is for the pods of an app. No controller keeps its status, so it says
// what the test says.
func (r *room) addBudget(app string, allowed int32) *policyv1.PodDisruptionBudget {
	r.t.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: app + "-budget"}}
	b.Spec.MinAvailable = new(intstr.FromInt32(1))
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	r.create(b)
	r.allow(b, allowed)
	return b
}

func (r *room) allow(b *policyv1.PodDisruptionBudget, allowed int32) {
	r.t.Helper()
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, DisruptionsAllowed: allowed, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1,
	}
	r.must(r.plane.Client.Status().Update(r.t.Context(), b))
}

func (r *room) drain(in time.Duration) { r.shard.Drain(r.id, "expired", time.Now().Add(in)) }

// another goes on with another instance, drained with a pod on its node.
func (r *room) another() {
	r.t.Helper()
	r.eventually("there is another instance", func() bool {
		for _, i := range r.world.Set.Instances(shard, group) {
			if i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING {
				r.id = i.GetId()
				return true
			}
		}
		return false
	})
	r.addNode()
	p := r.addPod("on-" + r.id)
	r.drain(long)
	r.eventually("the other pod is evicted", func() bool { return r.asked(p) })
	r.end(p)
	r.eventually("the other drain is acknowledged", r.acknowledged)
}

// acknowledged reports whether the shard was told that nothing is left.
func (r *room) acknowledged() bool { return r.shard.Instance(r.id).GetDrain().GetAckedAt() != nil }

func (r *room) cordoned() bool {
	r.t.Helper()
	var n corev1.Node
	r.must(r.plane.Client.Get(r.t.Context(), client.ObjectKeyFromObject(r.node), &n))
	return n.Spec.Unschedulable
}

// asked reports whether a pod's eviction has come about: it terminates, or is gone.
func (r *room) asked(p *corev1.Pod) bool {
	r.t.Helper()
	var now corev1.Pod
	err := r.plane.Client.Get(r.t.Context(), client.ObjectKeyFromObject(p), &now)
	r.must(client.IgnoreNotFound(err))
	return err != nil || now.DeletionTimestamp != nil
}

// end is the kubelet's part: a pod that terminates is gone.
func (r *room) end(p *corev1.Pod) {
	r.t.Helper()
	r.must(client.IgnoreNotFound(r.plane.Client.Delete(r.t.Context(), p, client.GracePeriodSeconds(0))))
}

// told returns the notes of all events with a reason, by the kind they are about.
func (r *room) told(reason string) map[string][]string {
	r.t.Helper()
	found := map[string][]string{}
	for _, ns := range []string{r.ns, metav1.NamespaceDefault} {
		var all eventsv1.EventList
		r.must(r.plane.Client.List(r.t.Context(), &all, client.InNamespace(ns)))
		for _, e := range all.Items {
			if e.Reason == reason && (ns == r.ns || r.node != nil && e.Regarding.Name == r.node.Name) {
				found[e.Regarding.Kind] = append(found[e.Regarding.Kind], e.Note)
			}
		}
	}
	return found
}

// tells waits until each of the kinds has one event with a reason that names all parts.
func (r *room) tells(reason string, parts []string, kinds ...string) {
	r.t.Helper()
	r.eventually("events "+reason, func() bool {
		all := r.told(reason)
		for _, k := range kinds {
			if len(all[k]) == 0 {
				return false
			}
		}
		return true
	})
	for kind, notes := range r.told(reason) {
		if len(notes) != 1 {
			r.t.Errorf("events %s on %s: %q, want one", reason, kind, notes)
		}
		for _, p := range parts {
			if !strings.Contains(notes[0], p) {
				r.t.Errorf("event %s on %s: %q, want %q in it", reason, kind, notes[0], p)
			}
		}
	}
}
