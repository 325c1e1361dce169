package shardgroup_test

import (
	"context"
	"errors"
	"fmt"
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
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const clusterName = "dev--default"

var shared planetest.Shared

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	shared.Main(m)
}

// site is a namespace of a real control plane with the controller and its shards.
type site struct {
	t         testing.TB
	config    *rest.Config // with the rights of the controller
	client    client.Client
	namespace string
	shards    *fake
	set       shardgroup.Shards // that the controller works with, unless it is nil: shards
	selfhost  bool
	// through is what the controller reads and writes through; nil: the manager's client.
	through func(client.WithWatch) client.Client
}

func newSite(t testing.TB, names ...string) *site {
	t.Helper()
	plane := shared.Plane(t)
	s := &site{t: t, shards: newFake(names...)}
	administrator := rest.CopyConfig(plane.Config)
	administrator.QPS, administrator.Burst = 1000, 1000
	var err error
	s.client, err = client.New(administrator, client.Options{Scheme: plane.Client.Scheme()})
	s.must(err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shardgroup-"}}
	s.must(s.client.Create(t.Context(), ns))
	s.namespace = ns.Name
	s.config = plane.Allowed(t, s.namespace, ".")
	s.config.QPS, s.config.Burst = 1000, 1000
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// cluster creates the CAPI Cluster.
func (s *site) cluster() *clusterv1.Cluster {
	c := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: clusterName, Finalizers: []string{"test/held"}},
		Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: v1beta1.GroupVersion().Group, Kind: "NstanceCluster", Name: clusterName,
		}},
	}
	s.must(s.client.Create(s.t.Context(), c))
	return c
}

// start runs the controller until the test or stop ends it.
func (s *site) start() (stop func()) {
	s.t.Helper()
	mgr, err := ctrl.NewManager(s.config, shared.Plane(s.t).ManagerOptions(s.namespace))
	s.must(err)
	if s.set == nil {
		s.set = s.shards
	}
	api := mgr.GetClient()
	if s.through != nil {
		api = s.through(watching{api})
	}
	r := &shardgroup.Reconciler{
		Client: api, Reader: mgr.GetAPIReader(), Shards: s.set, Recorder: mgr.GetEventRecorder("nstance-operator"), Now: time.Now,
		Namespace: s.namespace, Cluster: clusterName, SelfHosted: s.selfhost,
	}
	s.must(r.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-ended; err != nil {
				s.t.Errorf("the manager: %v", err)
			}
		}
	}
	s.t.Cleanup(stop)
	return stop
}

// watching lets a manager's client be intercepted; nobody watches through it.
type watching struct{ client.Client }

func (watching) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("not here")
}

// object makes an NstanceShardGroup that is not created yet.
func (s *site) object(group, shard string, size int32) *v1beta1.NstanceShardGroup {
	return &v1beta1.NstanceShardGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: capi.ShardGroupName(group, shard), Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName},
		},
		Spec: v1beta1.NstanceShardGroupSpec{Group: v1beta1.Name(group), Shard: v1beta1.Name(shard), Size: &size},
	}
}

func (s *site) create(o client.Object) {
	s.t.Helper()
	s.must(s.client.Create(s.t.Context(), o))
}

// edit changes an object on the API server.
func (s *site) edit(o *v1beta1.NstanceShardGroup, change func(*v1beta1.NstanceShardGroup)) {
	s.t.Helper()
	s.must(s.client.Get(s.t.Context(), client.ObjectKeyFromObject(o), o))
	before := o.DeepCopy()
	change(o)
	s.must(s.client.Patch(s.t.Context(), o, client.MergeFrom(before)))
}

func (s *site) get(o client.Object) error {
	return s.client.Get(s.t.Context(), client.ObjectKeyFromObject(o), o)
}

// has gives a shard a group.
func (s *site) has(shard string, g *nstancev1.GroupStatus) {
	s.shards.change(shard, func(x *shardState) {
		x.groups[g.GetKey()] = g
		x.touch(g)
	})
}

type shardState = shard

// eventually waits until check finds nothing wrong, for a minute at most.
func (s *site) eventually(what string, check func() error) {
	s.t.Helper()
	end := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-end:
			s.t.Fatalf("%s: not within a minute: %v", what, err)
		case <-tick.C:
		}
	}
}

// awaits waits until an object has a condition.
func (s *site) awaits(o *v1beta1.NstanceShardGroup, kind string, status metav1.ConditionStatus, reason string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%s is %s, %s", kind, status, reason), func() error {
		if err := s.get(o); err != nil {
			return err
		}
		c := meta.FindStatusCondition(o.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

func (s *site) awaitsGone(o client.Object) {
	s.t.Helper()
	s.eventually("the object is gone", func() error {
		if err := s.get(o); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there, with %v: %w", o.GetFinalizers(), err)
		}
		return nil
	})
}

// awaitsEvent waits for a Kubernetes event about an object.
func (s *site) awaitsEvent(o client.Object, reason string) {
	s.t.Helper()
	s.eventually("event "+reason, func() error {
		var all eventsv1.EventList
		if err := s.client.List(s.t.Context(), &all, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.Reason == reason && e.Regarding.Name == o.GetName() && e.Regarding.Kind == "NstanceShardGroup" {
				return nil
			}
		}
		return fmt.Errorf("there are %d others", len(all.Items))
	})
}
