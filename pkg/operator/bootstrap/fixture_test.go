package bootstrap_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/bootstrap"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

const (
	cluster = "prod--default"
	soon    = time.Minute
)

// world is a namespace with a Cluster, an operator's controller, and its shards.
type world struct {
	*planetest.Plane
	t      *testing.T
	config *rest.Config // the operator's way to the API server
	ns     string
	shards *shardstest.World
	set    bootstrap.Shards // what the controller sees of them
	wrap   func(client.Client) client.Client
	cached client.Client // what the controller sees of the cluster
	stop   func()
}

// begin makes a namespace with a Cluster, and shards that nobody asks yet.
func begin(t *testing.T, names ...string) *world {
	t.Helper()
	t.Parallel()
	plane := shared.Plane(t)
	w := &world{Plane: plane, t: t, ns: plane.Namespace(t), shards: shardstest.New(t, nil, names...)}
	w.set, w.config = w.shards.Set, plane.Allowed(t, w.ns, ".")
	for _, name := range names {
		w.shards.Shard(name).SetTiming(func(timing *shardstest.Timing) { timing.Drain = 0 })
	}
	c := &clusterv1.Cluster{ObjectMeta: w.meta(cluster)}
	c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceCluster", Name: cluster}
	w.make(c)
	return w
}

// start begins what an operator that starts would begin.
func (w *world) start() {
	w.t.Helper()
	mgr, err := ctrl.NewManager(w.config, w.ManagerOptions(w.ns))
	if err != nil {
		w.t.Fatal(err)
	}
	r := &bootstrap.Reconciler{
		Client: mgr.GetClient(), Shards: w.set, Recorder: mgr.GetEventRecorder("nstance"), Namespace: w.ns, Cluster: cluster,
	}
	w.cached = mgr.GetClient()
	if w.wrap != nil {
		r.Client = w.wrap(r.Client)
	}
	if err := r.SetupWithManager(mgr); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := mgr.Start(ctx); err != nil {
			w.t.Errorf("the manager ended: %v", err)
		}
	}()
	w.stop = func() { cancel(); <-ended }
	w.t.Cleanup(w.stop)
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.ns, Name: name}
}

func (w *world) make(o client.Object) { w.t.Helper(); w.Make(w.t, o) }

func (w *world) delete(o client.Object) { w.t.Helper(); w.Delete(w.t, o) }

func (w *world) patch(o client.Object, change func()) { w.t.Helper(); w.Patch(w.t, o, change) }

// sees waits until the controller's cache has an object as it was written last.
func (w *world) sees(o client.Object) {
	w.t.Helper()
	key := client.ObjectKeyFromObject(o)
	if err := w.Client.Get(w.t.Context(), key, o); err != nil {
		w.t.Fatal(err)
	}
	want := o.GetResourceVersion()
	planetest.Eventually(w.t, soon, "the cache has the last version", func(ctx context.Context) error {
		if err := w.cached.Get(ctx, key, o); err != nil || o.GetResourceVersion() == want {
			return err
		}
		return fmt.Errorf("it has %s, want %s", o.GetResourceVersion(), want)
	})
}

// pools returns both objects of each pool that has both, by name.
func (w *world) pools(ctx context.Context) (
	infra map[string]v1beta1.NstanceMachinePool, pools map[string]clusterv1.MachinePool, err error,
) {
	var is v1beta1.NstanceMachinePoolList
	var ps clusterv1.MachinePoolList
	for _, list := range []client.ObjectList{&is, &ps} {
		if err := w.Client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
			return nil, nil, err
		}
	}
	infra, pools = map[string]v1beta1.NstanceMachinePool{}, map[string]clusterv1.MachinePool{}
	for _, i := range is.Items {
		infra[i.Name] = i
	}
	for _, p := range ps.Items {
		pools[p.Name] = p
	}
	return infra, pools, nil
}

// undefined are shards of which each has a group that nothing defines any more.
type undefined struct{ bootstrap.Shards }

func (u undefined) Groups(shard string) []*nstancev1.GroupStatus {
	return append(u.Shards.Groups(shard), &nstancev1.GroupStatus{Key: "left", PendingSize: 1})
}

// become waits until these pools are there, whole, and no other.
func (w *world) become(names ...string) (infra map[string]v1beta1.NstanceMachinePool, pools map[string]clusterv1.MachinePool) {
	w.t.Helper()
	planetest.Eventually(w.t, soon, fmt.Sprintf("the pools are %v", names), func(ctx context.Context) error {
		var err error
		if infra, pools, err = w.pools(ctx); err != nil {
			return err
		}
		return same(infra, pools, names)
	})
	return infra, pools
}

// stay makes sure that these pools are there, and no other, for a while.
func (w *world) stay(names ...string) {
	w.t.Helper()
	planetest.Consistently(w.t, time.Second, fmt.Sprintf("the pools stay %v", names), func(ctx context.Context) error {
		infra, pools, err := w.pools(ctx)
		if err != nil {
			return err
		}
		return same(infra, pools, names)
	})
}

func same(infra map[string]v1beta1.NstanceMachinePool, pools map[string]clusterv1.MachinePool, names []string) error {
	i, p := slices.Sorted(maps.Keys(infra)), slices.Sorted(maps.Keys(pools))
	if !slices.Equal(i, names) || !slices.Equal(p, names) {
		return fmt.Errorf("MachinePools %v, NstanceMachinePools %v, want %v", p, i, names)
	}
	return nil
}

// has gives a shard a group of its own, of which more is said than its size.
func (w *world) has(shard, group string, size int32, more *nstancev1.UpsertGroupRequest) {
	w.t.Helper()
	w.shards.Shard(shard).AddGroup(group, size, "knd")
	if more == nil {
		return
	}
	more.Key = group
	if _, err := w.shards.Shard(shard).Service().UpsertGroup(w.t.Context(), more); err != nil {
		w.t.Fatal(err)
	}
}

// lose lets a shard delete a group.
func (w *world) lose(shard, group string) {
	w.t.Helper()
	if _, err := w.shards.Shard(shard).Service().DeleteGroup(w.t.Context(), &nstancev1.DeleteGroupRequest{Key: group}); err != nil {
		w.t.Fatal(err)
	}
}
