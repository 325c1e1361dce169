package machine_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/machine"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

const (
	clusterName = "c--t"
	unknownID   = "knd01m7y23z9me5h9rh8r505a17vz"
)

const (
	pending  = nstancev1.InstancePhase_INSTANCE_PHASE_PENDING
	running  = nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
	draining = nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING
	deleting = nstancev1.InstancePhase_INSTANCE_PHASE_DELETING
	deleted  = nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
)

// fixture is a namespace of a real API server, shards with a group web, and a reconciler that
// the tests call directly. Tests act as Cluster API's controllers.
type fixture struct {
	*testing.T
	api        client.Client
	ns         string
	shards     *shardstest.World
	names      []string // shard names
	rec        *machine.Reconciler
	now        time.Time
	writes     []string // the reconciler's successful writes to the API server
	selfHosted bool
	events     chan string
	// staleCluster is the Cluster in the cache; nil: the API server's.
	staleCluster *clusterv1.Cluster
	// staleMachine is the NstanceMachine in the cache; nil: the API server's.
	staleMachine *v1beta1.NstanceMachine
}

// newFixture returns a fixture whose shards delete instances without a drain.
func newFixture(t *testing.T, names ...string) *fixture {
	t.Helper()
	f := newFixtureOn(t, shardstest.Start(t, names...), names...)
	for _, name := range names {
		f.shards.Shard(name).SetTiming(func(timing *shardstest.Timing) { timing.Drain = 0 })
	}
	return f
}

// newFixtureOn returns a fixture with existing shards.
func newFixtureOn(t *testing.T, on *shardstest.World, names ...string) *fixture {
	t.Helper()
	plane := shared.Plane(t)
	f := &fixture{T: t, api: plane.Client, ns: plane.Namespace(t), shards: on, names: names, now: time.Now()}
	for _, name := range names {
		f.shards.Shard(name).SetCapacity("small", &nstancev1.MachineCapacity{CpuMillis: 4000, MemoryBytes: 8 << 30, Arch: "arm64"})
		f.resize(name, 0)
	}
	cluster := &clusterv1.Cluster{ObjectMeta: f.meta(clusterName)}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "api", Port: 6443}
	f.create(cluster)
	f.restart(nil)
	return f
}

func (f *fixture) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.ns, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}}
}

// resize sets the size of a shard's group.
func (f *fixture) resize(shard string, size int32) {
	f.Helper()
	f.shards.Shard(shard).Upsert(&nstancev1.UpsertGroupRequest{Key: "web", Template: new("knd"), InstanceType: new("small"), Size: &size})
}

// stopShard stops a shard's server, and advances the clock until the shard counts as
// unreachable.
func (f *fixture) stopShard(shard string) {
	f.Helper()
	f.shards.Shard(shard).Stop()
	f.shards.Heard()
	f.now = time.Now().Add(time.Minute)
}

// instances returns the instances of all shards, without the deleted ones.
func (f *fixture) instances() []*nstancev1.InstanceStatus {
	var all []*nstancev1.InstanceStatus
	for _, name := range f.names {
		all = append(all, f.shards.Shard(name).Instances("")...)
	}
	return slices.DeleteFunc(all, func(i *nstancev1.InstanceStatus) bool { return i.GetPhase() == deleted })
}

// calls returns the CreateInstance and DeleteInstance calls that the shards received.
func (f *fixture) calls() []proto.Message {
	var all []proto.Message
	for _, name := range f.names {
		shard := f.shards.Shard(name)
		all = slices.Concat(all, shard.Calls("CreateInstance"), shard.Calls("DeleteInstance"))
	}
	return all
}

// faultyShards is a set of shards whose CreateInstance and DeleteInstance calls go through
// intercept.
type faultyShards struct {
	*shards.Set
	intercept func(what string, call func() error) error
}

func (s faultyShards) CreateInstance(
	ctx context.Context, shard string, r *nstancev1.CreateInstanceRequest,
) (made *nstancev1.InstanceStatus, err error) {
	err = s.intercept("create", func() (err error) {
		made, err = s.Set.CreateInstance(ctx, shard, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

func (s faultyShards) DeleteInstance(ctx context.Context, shard, id string) error {
	return s.intercept("delete", func() error { return s.Set.DeleteInstance(ctx, shard, id) })
}

func (s faultyShards) DeleteInstanceByKey(ctx context.Context, shard, key string) error {
	return s.intercept("delete", func() error { return s.Set.DeleteInstanceByKey(ctx, shard, key) })
}

// restart replaces the reconciler, as a new process would. If inject is not nil, it is called
// for each call and write, and may return an error to fail it before or after it takes effect.
func (f *fixture) restart(inject func(what string) (before, after error)) {
	f.Helper()
	if inject == nil {
		inject = func(string) (error, error) { return nil, nil }
	}
	direct, err := client.NewWithWatch(shared.Plane(f.T).Config, client.Options{Scheme: f.api.Scheme()})
	if err != nil {
		f.Fatal(err)
	}
	call := func(what string, call func() error) error {
		before, after := inject(what)
		if before != nil {
			return before
		}
		if err := call(); err != nil {
			return err
		}
		return after
	}
	intercept := func(what string, o client.Object, write func() error) error {
		what = fmt.Sprintf("%s %T", what, o)
		return call(what, func() error {
			err := write()
			if err == nil {
				f.writes = append(f.writes, what)
			}
			return err
		})
	}
	f.events = make(chan string, 100)
	f.rec = &machine.Reconciler{
		Reader: f.api,
		Shards: faultyShards{f.shards.Set, call}, Recorder: &events.FakeRecorder{Events: f.events}, Random: rand.Reader, SelfHosted: f.selfHosted,
		Jitter: latest, Now: func() time.Time { return f.now },
		Client: interceptor.NewClient(direct, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if cluster, ok := o.(*clusterv1.Cluster); ok && f.staleCluster != nil {
					f.staleCluster.DeepCopyInto(cluster)
					return nil
				}
				if m, ok := o.(*v1beta1.NstanceMachine); ok && f.staleMachine != nil {
					f.staleMachine.DeepCopyInto(m)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return intercept("patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				return intercept("delete", o, func() error { return c.Delete(ctx, o, opts...) })
			},
			SubResourcePatch: func(
				ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
			) error {
				return intercept("status", o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
			},
		}),
	}
}

// latest makes all waits as long as they can be.
func latest() float64 { return 1 }

func (f *fixture) create(o client.Object) {
	f.Helper()
	if err := f.api.Create(f.Context(), o); err != nil {
		f.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

func (f *fixture) delete(o client.Object) {
	f.Helper()
	if err := f.api.Delete(f.Context(), o); err != nil {
		f.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

// createMachine creates a Machine with its own NstanceMachine, as a MachineSet does.
func (f *fixture) createMachine(name string, change func(*clusterv1.Machine, *v1beta1.NstanceMachine)) *v1beta1.NstanceMachine {
	f.Helper()
	m := &clusterv1.Machine{ObjectMeta: f.meta(name), Spec: clusterv1.MachineSpec{
		ClusterName: clusterName, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceMachine", Name: name},
	}}
	nm := &v1beta1.NstanceMachine{ObjectMeta: f.meta(name), Spec: v1beta1.NstanceMachineSpec{Group: "web"}}
	if change != nil {
		change(m, nm)
	}
	m.Finalizers = append(m.Finalizers, clusterv1.MachineFinalizer) // as Cluster API's core does
	f.create(m)
	nm.OwnerReferences = append(nm.OwnerReferences, metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: m.UID, Controller: new(true),
	})
	f.create(nm)
	return nm
}

// inDomain sets a Machine's failure domain.
func inDomain(domain string) func(*clusterv1.Machine, *v1beta1.NstanceMachine) {
	return func(m *clusterv1.Machine, _ *v1beta1.NstanceMachine) { m.Spec.FailureDomain = domain }
}

// createPoolMachine creates the objects of a pool's only instance, which runs on shard a: the
// NstanceShardGroup, the NstanceMachine and the Machine that Cluster API creates for it. The
// shard has no capacity for further instances.
func (f *fixture) createPoolMachine(name string) (m *v1beta1.NstanceMachine, id string) {
	f.Helper()
	f.resize("a", 1)
	id = f.instances()[0].GetId()
	f.shards.Shard("a").NoRoom(true)
	group := &v1beta1.NstanceShardGroup{
		ObjectMeta: f.meta("web--a"), Spec: v1beta1.NstanceShardGroupSpec{Group: "web", Shard: "a", Size: new(int32(1))},
	}
	f.create(group)
	m = f.createMachine(name, func(m *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		m.Labels[clusterv1.MachinePoolNameLabel] = "web"
		nm.Labels[clusterv1.MachinePoolNameLabel] = "web"
		nm.Spec.Shard, nm.Spec.InstanceID = "a", v1beta1.InstanceID(id)
	})
	return m, id
}

// reconcile reconciles one NstanceMachine once, after all events of the shards have arrived.
func (f *fixture) reconcile(name string) (reconcile.Result, error) {
	f.Helper()
	f.shards.Heard()
	return f.rec.Reconcile(f.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: f.ns, Name: name}})
}

// mustReconcile reconciles twice, so that the shard's reaction is seen, and returns the
// NstanceMachine, or nil if it is gone.
func (f *fixture) mustReconcile(name string) *v1beta1.NstanceMachine {
	f.Helper()
	for range 2 {
		if _, err := f.reconcile(name); err != nil {
			f.Fatalf("reconcile %s: %v", name, err)
		}
	}
	return f.get(name)
}

// awaitMissing waits until shard a has confirmed that it has no such instance.
func (f *fixture) awaitMissing(id string) {
	f.Helper()
	shardstest.Eventually(f, "the shard has no instance "+id, func() bool { return f.shards.Set.Missing("a", "web", id) })
}

func (f *fixture) get(name string) *v1beta1.NstanceMachine {
	f.Helper()
	var m v1beta1.NstanceMachine
	err := f.api.Get(f.Context(), client.ObjectKey{Namespace: f.ns, Name: name}, &m)
	if client.IgnoreNotFound(err) != nil {
		f.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return &m
}

// machine returns the Machine of that name, or nil if it is gone.
func (f *fixture) machine(name string) *clusterv1.Machine {
	f.Helper()
	var m clusterv1.Machine
	err := f.api.Get(f.Context(), client.ObjectKey{Namespace: f.ns, Name: name}, &m)
	if client.IgnoreNotFound(err) != nil {
		f.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return &m
}

// wantCondition checks the status and reason of a condition, and that its message contains
// words.
func (f *fixture) wantCondition(m *v1beta1.NstanceMachine, kind string, status metav1.ConditionStatus, reason, words string) {
	f.Helper()
	c := meta.FindStatusCondition(m.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, words) {
		f.Errorf("condition %s is %+v: want %s, %s, %q", kind, c, status, reason, words)
	}
}

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)
