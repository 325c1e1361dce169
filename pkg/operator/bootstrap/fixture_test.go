package bootstrap_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
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
	soon    = planetest.Patience
)

// fixture is a namespace with a Cluster, an operator's controller, and its shards.
type fixture struct {
	*planetest.Plane
	t      *testing.T
	config *rest.Config // the operator's client
	ns     string
	shards *shardstest.World
	set    bootstrap.Shards // the controller's view of them
	wrap   func(client.Client) client.Client
	cached client.Client // the controller's cache
	stop   func()
}

// newFixture creates a namespace with a Cluster, and shards that have not been contacted yet.
func newFixture(t *testing.T, names ...string) *fixture {
	t.Helper()
	t.Parallel()
	plane := shared.Plane(t)
	f := &fixture{Plane: plane, t: t, ns: plane.Namespace(t), shards: shardstest.New(t, nil, names...)}
	f.set, f.config = f.shards.Set, plane.Allowed(t, f.ns, ".")
	for _, name := range names {
		f.shards.Shard(name).SetTiming(func(timing *shardstest.Timing) { timing.Drain = 0 })
	}
	c := &clusterv1.Cluster{ObjectMeta: f.meta(cluster)}
	c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceCluster", Name: cluster}
	f.make(c)
	return f
}

// start starts the controllers as a starting operator does.
func (f *fixture) start() {
	f.t.Helper()
	mgr, err := ctrl.NewManager(f.config, f.ManagerOptions(f.ns))
	if err != nil {
		f.t.Fatal(err)
	}
	r := &bootstrap.Reconciler{
		Client: mgr.GetClient(), Shards: f.set, Recorder: mgr.GetEventRecorder("nstance"), Namespace: f.ns, Cluster: cluster,
	}
	f.cached = mgr.GetClient()
	if f.wrap != nil {
		r.Client = f.wrap(r.Client)
	}
	if err := r.SetupWithManager(mgr); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := mgr.Start(ctx); err != nil {
			f.t.Errorf("the manager ended: %v", err)
		}
	}()
	f.stop = func() { cancel(); <-ended }
	f.t.Cleanup(f.stop)
}

func (f *fixture) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.ns, Name: name}
}

func (f *fixture) make(o client.Object) { f.t.Helper(); f.Make(f.t, o) }

func (f *fixture) delete(o client.Object) { f.t.Helper(); f.Delete(f.t, o) }

func (f *fixture) patch(o client.Object, change func()) { f.t.Helper(); f.Patch(f.t, o, change) }

// sees waits until the controller's cache has an object as it was written last.
func (f *fixture) sees(o client.Object) { f.t.Helper(); f.Cached(f.t, f.cached, o) }

// pools returns both objects of each pool that has both, by name.
func (f *fixture) pools(ctx context.Context) (
	infra map[string]v1beta1.NstanceMachinePool, pools map[string]clusterv1.MachinePool, err error,
) {
	var is v1beta1.NstanceMachinePoolList
	var ps clusterv1.MachinePoolList
	for _, list := range []client.ObjectList{&is, &ps} {
		if err := f.Client.List(ctx, list, client.InNamespace(f.ns)); err != nil {
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

// undefined returns shards with one group each that is not defined in Kubernetes any more.
type undefined struct{ bootstrap.Shards }

func (u undefined) Groups(shard string) []*nstancev1.GroupStatus {
	return append(u.Shards.Groups(shard), &nstancev1.GroupStatus{Key: "left", PendingSize: 1})
}

// become waits until exactly these pools exist, complete.
func (f *fixture) become(names ...string) (infra map[string]v1beta1.NstanceMachinePool, pools map[string]clusterv1.MachinePool) {
	f.t.Helper()
	planetest.Eventually(f.t, soon, fmt.Sprintf("the pools are %v", names), func(ctx context.Context) error {
		var err error
		if infra, pools, err = f.pools(ctx); err != nil {
			return err
		}
		return same(infra, pools, names)
	})
	return infra, pools
}

// stay checks for a while that exactly these pools exist.
func (f *fixture) stay(names ...string) {
	f.t.Helper()
	planetest.Consistently(f.t, time.Second, fmt.Sprintf("the pools stay %v", names), func(ctx context.Context) error {
		infra, pools, err := f.pools(ctx)
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

// has adds a dynamic group with more than a size to a shard.
func (f *fixture) has(shard, group string, size int32, more *nstancev1.UpsertGroupRequest) {
	f.t.Helper()
	f.shards.Shard(shard).AddGroup(group, size, "knd")
	if more == nil {
		return
	}
	more.Key = group
	f.shards.Shard(shard).Upsert(more)
}

// tells waits until these are all events of a reason.
func (f *fixture) tells(reason string, want ...string) {
	f.t.Helper()
	planetest.Eventually(f.t, soon, "events "+reason, func(ctx context.Context) error {
		var all eventsv1.EventList
		if err := f.Client.List(ctx, &all, client.InNamespace(f.ns)); err != nil {
			return err
		}
		var notes []string
		for _, e := range all.Items {
			if e.Reason == reason {
				notes = append(notes, e.Note)
			}
		}
		if !slices.Equal(notes, want) {
			return fmt.Errorf("told %q, want %q", notes, want)
		}
		return nil
	})
}
