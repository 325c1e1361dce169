package pool_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/pool"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

var shared planetest.Shared

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	shared.Main(m)
}

const clusterName = "example--default"

// fixture is a namespace with shards, and with stand-ins for the other controllers.
type fixture struct {
	t      *testing.T
	api    client.Client
	plane  *planetest.Plane
	config *rest.Config // with the rights of the controller
	ns     string
	shards *shardstest.World
	nodes  *nodes
	core   *core
	grace  time.Duration
	doubt  time.Duration // 0: 1 s
	resync time.Duration
	wrap   func(client.Client) client.Client // nil: the operator's client is not wrapped
	stop   func()                            // stops the operator
}

// newFixture returns a fixture without a running operator. Its shards delete instances without
// a drain.
func newFixture(t *testing.T, shards ...string) *fixture {
	t.Helper()
	plane := shared.Plane(t)
	f := &fixture{t: t, api: plane.Client, plane: plane, ns: plane.Namespace(t), shards: shardstest.Start(t, shards...)}
	for _, id := range shards {
		f.shards.Shard(id).SetTiming(func(timing *shardstest.Timing) { timing.Drain = 0 })
	}
	f.config = plane.Allowed(t, f.ns, ".")
	f.nodes = &nodes{api: plane.Client}
	f.create(&clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: clusterName},
		Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "api", Port: 6443}},
	})
	return f
}

// startFixture returns a fixture with a running operator.
func startFixture(t *testing.T, shards ...string) *fixture {
	t.Helper()
	f := newFixture(t, shards...)
	f.runOperator(f.shards)
	return f
}

// runOperator starts an operator of these shards.
func (f *fixture) runOperator(shards *shardstest.World) {
	f.t.Helper()
	options := f.plane.ManagerOptions(f.ns)
	options.Logger = logr.Discard()
	if f.resync > 0 {
		options.Cache.SyncPeriod = &f.resync
	}
	mgr, err := ctrl.NewManager(f.config, options)
	f.must(err)
	// The stand-ins for other controllers read the operator's cache, and have all rights.
	others, err := client.New(f.plane.Config, client.Options{Scheme: f.api.Scheme(), Cache: &client.CacheOptions{Reader: mgr.GetCache()}})
	f.must(err)
	f.nodes.cache = mgr.GetCache()
	r := &pool.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Shards: shards.Set, Nodes: f.nodes, Now: time.Now, Grace: f.grace,
		Doubt: cmp.Or(f.doubt, time.Second),
	}
	if f.wrap != nil {
		r.Client = f.wrap(r.Client)
	}
	f.must(r.SetupWithManager(mgr))
	f.must((&pusher{others, shards.Set}).setup(mgr))
	f.core = &core{api: others, drained: map[string]bool{}}
	f.must(f.core.setup(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := mgr.Start(ctx); err != nil {
			f.t.Errorf("manager: %v", err)
		}
	}()
	f.stop = func() { cancel(); <-done }
	f.t.Cleanup(f.stop)
}

// makeUnknown stops a shard and makes it unknown to the operator, as after a start without a
// connection.
func (f *fixture) makeUnknown(shard string, all ...string) {
	f.t.Helper()
	f.shards.Shard(shard).Stop()
	f.shards.Configure(slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == shard })...)
	f.shards.Configure(all...)
	if state, _ := f.shards.Set.State(shard); state.Known {
		f.t.Fatalf("shard %s is known", shard)
	}
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) create(o client.Object) {
	f.t.Helper()
	if o.GetNamespace() == "" {
		o.SetNamespace(f.ns)
	}
	f.must(f.api.Create(f.t.Context(), o))
}

// pool creates an NstanceMachinePool and its MachinePool, both named like the group.
func (f *fixture) pool(group string, replicas int32, shards ...v1beta1.Name) {
	f.t.Helper()
	f.create(&v1beta1.NstanceMachinePool{
		ObjectMeta: metav1.ObjectMeta{Name: group},
		Spec:       v1beta1.NstanceMachinePoolSpec{Group: v1beta1.Name(group), Shards: shards, Template: "knd"},
	})
	f.create(machinePool(group, replicas))
}

func machinePool(group string, replicas int32) *clusterv1.MachinePool {
	p := &clusterv1.MachinePool{
		ObjectMeta: metav1.ObjectMeta{Name: group, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}},
		Spec:       clusterv1.MachinePoolSpec{ClusterName: clusterName, Replicas: new(replicas)},
	}
	p.Spec.Template.Spec = clusterv1.MachineSpec{
		ClusterName: clusterName,
		Bootstrap:   clusterv1.Bootstrap{DataSecretName: new("")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: v1beta1.Group, Kind: "NstanceMachinePool", Name: group,
		},
	}
	return p
}

func (f *fixture) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: f.ns, Name: name}
}

func (f *fixture) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.ns, Name: name}
}

func (f *fixture) get(name string) *v1beta1.NstanceMachinePool {
	f.t.Helper()
	var p v1beta1.NstanceMachinePool
	f.must(f.api.Get(f.t.Context(), f.key(name), &p))
	return &p
}

// scale sets the replicas of a MachinePool.
func (f *fixture) scale(name string, replicas int32) {
	f.t.Helper()
	f.patch(&clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name}},
		fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

func (f *fixture) patch(o client.Object, merge string) {
	f.t.Helper()
	if o.GetNamespace() == "" {
		o.SetNamespace(f.ns)
	}
	f.must(f.api.Patch(f.t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(merge))))
}

func (f *fixture) eventually(what string, holds func() error) {
	f.t.Helper()
	planetest.Eventually(f.t, planetest.Patience, what, func(context.Context) error { return holds() })
}

// sizes returns the sizes of a group's parts on these shards; -1 if there is no part.
func (f *fixture) sizes(group string, shards ...string) []int32 {
	f.t.Helper()
	var all []int32
	for _, shard := range shards {
		var g v1beta1.NstanceShardGroup
		err := f.api.Get(f.t.Context(), f.key(group+"--"+shard), &g)
		if client.IgnoreNotFound(err) != nil {
			f.t.Fatal(err)
		}
		if err != nil {
			all = append(all, -1)
			continue
		}
		all = append(all, *g.Spec.Size)
	}
	return all
}

func (f *fixture) awaitSizes(group string, shards []string, want ...int32) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("the sizes of %s are %v", group, want), func() error {
		if got := f.sizes(group, shards...); !slices.Equal(got, want) {
			return fmt.Errorf("they are %v", got)
		}
		for i, shard := range shards {
			if n := len(f.liveInstances(shard, group)); n != int(max(want[i], 0)) {
				return fmt.Errorf("%d instances exist on shard %s", n, shard)
			}
		}
		return nil
	})
}

// liveInstances returns the IDs of a group's instances that have a VM and are not deleted,
// sorted.
func (f *fixture) liveInstances(shard, group string) (ids []string) {
	for _, i := range f.shards.Shard(shard).Instances(group) {
		if i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED && i.GetNodeProviderId() != "" {
			ids = append(ids, i.GetId())
		}
	}
	slices.Sort(ids)
	return ids
}

// providerIDs returns the provider IDs of the live instances on these shards, sorted.
func (f *fixture) providerIDs(group string, shards ...string) (ids []string) {
	for _, shard := range shards {
		for _, id := range f.liveInstances(shard, group) {
			ids = append(ids, "process:///"+id)
		}
	}
	slices.Sort(ids)
	return ids
}

// awaitProviderIDs waits until a pool's providerIDList is want, its status counts it, and the
// MachinePool has it.
func (f *fixture) awaitProviderIDs(name string, want []string) {
	f.t.Helper()
	f.eventually("the providerIDList of "+name, func() error {
		p := f.get(name)
		var m clusterv1.MachinePool
		f.must(f.api.Get(f.t.Context(), f.key(name), &m))
		if !slices.Equal(p.Spec.ProviderIDList, want) || !slices.Equal(m.Spec.ProviderIDList, want) ||
			deref(p.Status.Replicas, -1) != int32(len(want)) {
			return fmt.Errorf("it is %v, the MachinePool has %v, want %v", p.Spec.ProviderIDList, m.Spec.ProviderIDList, want)
		}
		return nil
	})
}

// deref returns what p points to, or a default.
func deref[T any](p *T, or T) T {
	if p == nil {
		return or
	}
	return *p
}
