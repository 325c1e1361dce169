package shardgroup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shardgroup"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const clusterName = "dev--default"

var shared planetest.Shared

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	shared.Main(m)
}

// fixture is a namespace of a real control plane, with shards and the controller.
type fixture struct {
	t          testing.TB
	config     *rest.Config // with the rights of the controller
	client     client.Client
	namespace  string
	shards     *shardstest.World
	selfHosted bool
	// intercept wraps the controller's client, if not nil.
	intercept  func(client.WithWatch) client.Client
	beforeRead func() error     // is called before each of the controller's uncached reads, if not nil
	now        func() time.Time // the controller's clock
	cached     client.Client    // the manager's client, which reads from the controller's cache
}

func newFixture(t testing.TB, names ...string) *fixture {
	t.Helper()
	return newFixtureOn(t, shardstest.Start(t, names...))
}

// slowShards returns shards whose calls have a long timeout, and that are not followed yet.
func slowShards(t testing.TB, names ...string) *shardstest.World {
	t.Helper()
	return shardstest.New(t, func(c *shards.Config) { c.Timeout = 5 * time.Minute }, names...)
}

func newFixtureOn(t testing.TB, on *shardstest.World) *fixture {
	t.Helper()
	plane := shared.Plane(t)
	f := &fixture{t: t, shards: on, now: time.Now}
	administrator := rest.CopyConfig(plane.Config)
	administrator.QPS, administrator.Burst = 1000, 1000
	var err error
	f.client, err = client.New(administrator, client.Options{Scheme: plane.Client.Scheme()})
	f.must(err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shardgroup-"}}
	f.must(f.client.Create(t.Context(), ns))
	f.namespace = ns.Name
	f.config = plane.Allowed(t, f.namespace, ".")
	f.config.QPS, f.config.Burst = 1000, 1000
	return f
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// cluster creates the CAPI Cluster.
func (f *fixture) createCluster() *clusterv1.Cluster {
	c := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: clusterName, Finalizers: []string{"test/held"}},
		Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: v1beta1.GroupVersion().Group, Kind: "NstanceCluster", Name: clusterName,
		}},
	}
	f.must(f.client.Create(f.t.Context(), c))
	return c
}

// start runs the controller until the test or stop ends it.
func (f *fixture) start() (stop func()) {
	f.t.Helper()
	mgr, err := ctrl.NewManager(f.config, shared.Plane(f.t).ManagerOptions(f.namespace))
	f.must(err)
	api := mgr.GetClient()
	f.cached = api
	if f.intercept != nil {
		api = f.intercept(withWatch{api})
	}
	r := &shardgroup.Reconciler{
		Client: api, Reader: uncached{mgr.GetAPIReader(), f.beforeRead}, Shards: f.shards.Set,
		Recorder: mgr.GetEventRecorder("nstance-operator"), Now: f.now,
		Namespace: f.namespace, Cluster: clusterName, SelfHosted: f.selfHosted,
	}
	f.must(r.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-ended; err != nil {
				f.t.Errorf("manager: %v", err)
			}
		}
	}
	f.t.Cleanup(stop)
	return stop
}

// withWatch adds the method Watch, which interceptors require but tests do not use, to a
// manager's client.
type withWatch struct{ client.Client }

func (withWatch) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("the tests watch nothing by this client")
}

// uncached is a reader with a hook before each read.
type uncached struct {
	client.Reader
	before func() error
}

func (u uncached) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if u.before != nil {
		if err := u.before(); err != nil {
			return err
		}
	}
	return u.Reader.Get(ctx, key, o, opts...)
}

// object returns an NstanceShardGroup without creating it.
func (f *fixture) object(group, shard string, size int32) *v1beta1.NstanceShardGroup {
	return &v1beta1.NstanceShardGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: capi.ShardGroupName(group, shard), Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName},
		},
		Spec: v1beta1.NstanceShardGroupSpec{Group: v1beta1.Name(group), Shard: v1beta1.Name(shard), Size: &size},
	}
}

// manager is what a shard knows an object by.
func (f *fixture) manager(o *v1beta1.NstanceShardGroup) string {
	return "NstanceShardGroup " + f.namespace + "/" + o.Name
}

// managedBy makes something else, or nothing, the manager of the group web of a shard.
func (f *fixture) managedBy(shard, manager string) {
	f.t.Helper()
	f.shards.Shard(shard).Upsert(&nstancev1.UpsertGroupRequest{Key: "web", Manager: manager})
	f.shards.Heard()
}

// awaitManager waits until that manages the group web of a shard.
func (f *fixture) awaitManager(shard, manager string) {
	f.t.Helper()
	f.eventually("the group's manager is "+manager, func() error {
		if is := f.shards.Shard(shard).Group("web").GetManager(); is != manager {
			return fmt.Errorf("it is %q", is)
		}
		return nil
	})
}

func (f *fixture) create(o client.Object) {
	f.t.Helper()
	f.must(f.client.Create(f.t.Context(), o))
}

// edit reads an object, changes it, and patches it in the API server.
func (f *fixture) edit(o *v1beta1.NstanceShardGroup, change func(*v1beta1.NstanceShardGroup)) {
	f.t.Helper()
	f.must(f.client.Get(f.t.Context(), client.ObjectKeyFromObject(o), o))
	before := o.DeepCopy()
	change(o)
	f.must(f.client.Patch(f.t.Context(), o, client.MergeFrom(before)))
}

func (f *fixture) get(o client.Object) error {
	return f.client.Get(f.t.Context(), client.ObjectKeyFromObject(o), o)
}

// group is a group of a shard.
type group struct {
	key    string
	size   int32
	static bool // with a static size of 2
}

func staticGroup(size int32) group { return group{"web", size, true} }

func dynamicGroup(size int32) group { return group{"web", size, false} }

// addGroup creates a group on a shard, managed by its object.
func (f *fixture) addGroup(shard string, g group) {
	f.t.Helper()
	on := f.shards.Shard(shard)
	if g.static {
		on.Static(g.key, 2, "knd")
	}
	manager := f.manager(f.object(g.key, shard, g.size))
	on.Upsert(&nstancev1.UpsertGroupRequest{Key: g.key, Size: &g.size, Template: new("knd"), Manager: manager})
	f.shards.Heard()
}

// removeGroup removes a group and its instances from a shard.
func (f *fixture) removeGroup(shard, key string) {
	f.t.Helper()
	f.shards.Shard(shard).Delete(key)
	f.shards.Shard(shard).KillAll(key)
	f.shards.Heard()
}

// upserts returns the UpsertGroup calls that a shard received.
func (f *fixture) upserts(shard string) (all []*nstancev1.UpsertGroupRequest) {
	for _, call := range f.shards.Shard(shard).Calls("UpsertGroup") {
		all = append(all, call.(*nstancev1.UpsertGroupRequest))
	}
	return all
}

// deletes returns the keys of the DeleteGroup calls that a shard received.
func (f *fixture) deletes(shard string) (all []string) {
	for _, call := range f.shards.Shard(shard).Calls("DeleteGroup") {
		all = append(all, call.(*nstancev1.DeleteGroupRequest).GetKey())
	}
	return all
}

// awaitObserved waits until the status shows that the shard has accepted the current
// generation.
func (f *fixture) awaitObserved(o *v1beta1.NstanceShardGroup) {
	f.t.Helper()
	f.eventually("the generation is observed", func() error {
		if err := f.get(o); err != nil || o.Status.ObservedGeneration != o.Generation {
			return fmt.Errorf("generation %d, observed %d: %w", o.Generation, o.Status.ObservedGeneration, err)
		}
		return nil
	})
}

// eventually waits until check returns nil.
func (f *fixture) eventually(what string, check func() error) {
	f.t.Helper()
	end := time.After(planetest.Patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-end:
			f.t.Fatalf("%s: not within %v: %v", what, planetest.Patience, err)
		case <-tick.C:
		}
	}
}

// awaitCondition waits until a condition of an object has that status and reason.
func (f *fixture) awaitCondition(o *v1beta1.NstanceShardGroup, kind string, status metav1.ConditionStatus, reason string) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("%s is %s, %s", kind, status, reason), func() error {
		if err := f.get(o); err != nil {
			return err
		}
		c := meta.FindStatusCondition(o.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// awaitReady waits until Ready is False for a reason, with words in its message.
func (f *fixture) awaitReady(o *v1beta1.NstanceShardGroup, reason, words string) {
	f.t.Helper()
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, reason)
	f.eventually(words, func() error {
		if err := f.get(o); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionReady); !strings.Contains(c.Message, words) {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

func (f *fixture) awaitGone(o client.Object) {
	f.t.Helper()
	f.eventually("the object is gone", func() error {
		if err := f.get(o); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists, with the finalizers %v: %w", o.GetFinalizers(), err)
		}
		return nil
	})
}

// awaitEvent waits for a Kubernetes event about an object.
func (f *fixture) awaitEvent(o client.Object, reason string) {
	f.t.Helper()
	f.eventually("event "+reason, func() error {
		var all eventsv1.EventList
		if err := f.client.List(f.t.Context(), &all, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.Reason == reason && e.Regarding.Name == o.GetName() && e.Regarding.Kind == "NstanceShardGroup" {
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(all.Items))
	})
}
