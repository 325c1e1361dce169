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

// stage is a namespace with shards behind it, and what plays the other controllers.
type stage struct {
	t      *testing.T
	api    client.Client
	plane  *planetest.Plane
	config *rest.Config // with the rights of the controller
	ns     string
	world  *shardstest.World
	nodes  *nodes
	core   *core
	grace  time.Duration
	doubt  time.Duration // 0: a second
	sync   time.Duration
	stop   func() // the operator
}

// newStage makes a stage on which no operator runs yet. Nothing is drained there.
func newStage(t *testing.T, shards ...string) *stage {
	t.Helper()
	plane := shared.Plane(t)
	s := &stage{t: t, api: plane.Client, plane: plane, ns: plane.Namespace(t), world: shardstest.Start(t, shards...)}
	for _, id := range shards {
		s.world.Shard(id).SetTiming(func(timing *shardstest.Timing) { timing.Drain = 0 })
	}
	s.config = plane.Allowed(t, s.ns, ".")
	s.nodes = &nodes{api: plane.Client}
	s.create(&clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: clusterName},
		Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "api", Port: 6443}},
	})
	return s
}

// start is a stage with an operator.
func start(t *testing.T, shards ...string) *stage {
	t.Helper()
	s := newStage(t, shards...)
	s.run(s.world)
	return s
}

// run starts an operator that knows these shards.
func (s *stage) run(world *shardstest.World) {
	s.t.Helper()
	options := s.plane.ManagerOptions(s.ns)
	options.Logger = logr.Discard()
	if s.sync > 0 {
		options.Cache.SyncPeriod = &s.sync
	}
	mgr, err := ctrl.NewManager(s.config, options)
	s.must(err)
	// Those that play the others see what the operator sees, and may do everything.
	others, err := client.New(s.plane.Config, client.Options{Scheme: s.api.Scheme(), Cache: &client.CacheOptions{Reader: mgr.GetCache()}})
	s.must(err)
	s.nodes.cache = mgr.GetCache()
	r := &pool.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Shards: world.Set, Nodes: s.nodes, Now: time.Now, Grace: s.grace,
		Doubt: cmp.Or(s.doubt, time.Second),
	}
	s.must(r.SetupWithManager(mgr))
	s.must((&pusher{others, world.Set}).setup(mgr))
	s.core = &core{api: others, drained: map[string]bool{}}
	s.must(s.core.setup(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := mgr.Start(ctx); err != nil {
			s.t.Errorf("the manager: %v", err)
		}
	}()
	s.stop = func() { cancel(); <-done }
	s.t.Cleanup(s.stop)
}

// forget has the operator know nothing of a shard that it can't reach, as after a start.
func (s *stage) forget(shard string, all ...string) {
	s.t.Helper()
	s.world.Shard(shard).Stop()
	s.world.Configure(slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == shard })...)
	s.world.Configure(all...)
	if state, _ := s.world.Set.State(shard); state.Known {
		s.t.Fatalf("shard %s is known", shard)
	}
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) create(o client.Object) {
	s.t.Helper()
	if o.GetNamespace() == "" {
		o.SetNamespace(s.ns)
	}
	s.must(s.api.Create(s.t.Context(), o))
}

// pool makes a MachinePool and its infrastructure, both of the group's name.
func (s *stage) pool(group string, replicas int32, shards ...v1beta1.Name) {
	s.t.Helper()
	s.create(&v1beta1.NstanceMachinePool{
		ObjectMeta: metav1.ObjectMeta{Name: group},
		Spec:       v1beta1.NstanceMachinePoolSpec{Group: v1beta1.Name(group), Shards: shards, Template: "knd"},
	})
	s.create(machinePool(group, replicas))
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

func (s *stage) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.ns, Name: name}
}

func (s *stage) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.ns, Name: name}
}

func (s *stage) get(name string) *v1beta1.NstanceMachinePool {
	s.t.Helper()
	var p v1beta1.NstanceMachinePool
	s.must(s.api.Get(s.t.Context(), s.key(name), &p))
	return &p
}

// scale sets the replicas of a MachinePool.
func (s *stage) scale(name string, replicas int32) {
	s.t.Helper()
	s.patch(&clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}},
		fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

func (s *stage) patch(o client.Object, merge string) {
	s.t.Helper()
	if o.GetNamespace() == "" {
		o.SetNamespace(s.ns)
	}
	s.must(s.api.Patch(s.t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(merge))))
}

func (s *stage) eventually(what string, holds func() error) {
	s.t.Helper()
	planetest.Eventually(s.t, time.Minute, what, func(context.Context) error { return holds() })
}

// sizes are what a group's parts are to have; -1: there is none.
func (s *stage) sizes(group string, shards ...string) []int32 {
	s.t.Helper()
	var all []int32
	for _, shard := range shards {
		var g v1beta1.NstanceShardGroup
		err := s.api.Get(s.t.Context(), s.key(group+"--"+shard), &g)
		if client.IgnoreNotFound(err) != nil {
			s.t.Fatal(err)
		}
		if err != nil {
			all = append(all, -1)
			continue
		}
		all = append(all, *g.Spec.Size)
	}
	return all
}

func (s *stage) settled(group string, shards []string, want ...int32) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("the sizes of %s are %v", group, want), func() error {
		if got := s.sizes(group, shards...); !slices.Equal(got, want) {
			return fmt.Errorf("they are %v", got)
		}
		for i, shard := range shards {
			if n := len(s.living(shard, group)); n != int(max(want[i], 0)) {
				return fmt.Errorf("%d instances live on shard %s", n, shard)
			}
		}
		return nil
	})
}

// living are the ids of a group's instances that have a machine and are not deleted.
func (s *stage) living(shard, group string) (ids []string) {
	for _, i := range s.world.Shard(shard).Instances(group) {
		if i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED && i.GetNodeProviderId() != "" {
			ids = append(ids, i.GetId())
		}
	}
	slices.Sort(ids)
	return ids
}

// providerIDs are those of the instances that live on these shards, sorted.
func (s *stage) providerIDs(group string, shards ...string) (ids []string) {
	for _, shard := range shards {
		for _, id := range s.living(shard, group) {
			ids = append(ids, "process:///"+id)
		}
	}
	slices.Sort(ids)
	return ids
}

// listed waits until a pool's list is this, its status counts it, and core has it.
func (s *stage) listed(name string, want []string) {
	s.t.Helper()
	s.eventually("the list of "+name, func() error {
		p := s.get(name)
		var m clusterv1.MachinePool
		s.must(s.api.Get(s.t.Context(), s.key(name), &m))
		if !slices.Equal(p.Spec.ProviderIDList, want) || !slices.Equal(m.Spec.ProviderIDList, want) ||
			deref(p.Status.Replicas, -1) != int32(len(want)) {
			return fmt.Errorf("it is %v, core has %v, want %v", p.Spec.ProviderIDList, m.Spec.ProviderIDList, want)
		}
		return nil
	})
}

// deref is what p points to, or else another value.
func deref[T any](p *T, or T) T {
	if p == nil {
		return or
	}
	return *p
}
