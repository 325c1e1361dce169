package problems_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/problems"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

const (
	clusterName = "dev--default"
	instance    = "knd01hf7yat00e00r0000000000g0"
	another     = "knd01hf7yat00e00r0000000000g2"
)

var shared planetest.Shared

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	shared.Main(m)
}

// site is a namespace with objects of a group on two shards, of a machine, and of the
// cluster, where the reporter runs.
type site struct {
	t         *testing.T
	plane     *planetest.Plane
	world     *shardstest.World
	namespace string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, plane: shared.Plane(t), world: shardstest.Start(t, "a", "b")}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "problems-"}}
	s.create(ns)
	s.namespace = ns.Name
	s.world.Shard("a").Static("web", 0, "knd")
	s.world.Synced()
	mp := &clusterv1.MachinePool{ObjectMeta: s.meta("mp"), Spec: clusterv1.MachinePoolSpec{
		ClusterName: clusterName, Template: clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
			ClusterName: clusterName, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: v1beta1.GroupVersion().Group, Kind: "NstanceMachinePool", Name: "pool",
			},
		}},
	}}
	s.create(mp)
	pool := &v1beta1.NstanceMachinePool{
		ObjectMeta: s.meta("pool"), Spec: v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"a"}},
	}
	pool.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "MachinePool", Name: mp.Name, UID: mp.UID,
	}}
	s.create(pool)
	for _, shard := range []v1beta1.Name{"a", "b"} {
		s.create(&v1beta1.NstanceShardGroup{
			ObjectMeta: s.meta("web--" + string(shard)), Spec: v1beta1.NstanceShardGroupSpec{Group: "web", Shard: shard, Size: new(int32(0))},
		})
	}
	s.create(&v1beta1.NstanceMachine{ObjectMeta: s.meta("machine"), Spec: v1beta1.NstanceMachineSpec{
		Group: "web", Shard: "a", IdempotencyKey: "key", InstanceID: instance,
	}})
	s.create(&v1beta1.NstanceCluster{ObjectMeta: s.meta(clusterName)})
	s.start()
	return s
}

func (s *site) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}}
}

func (s *site) create(o client.Object) {
	s.t.Helper()
	if err := s.plane.Client.Create(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) start() {
	s.t.Helper()
	mgr, err := ctrl.NewManager(s.plane.Config, s.plane.ManagerOptions(s.namespace))
	if err != nil {
		s.t.Fatal(err)
	}
	recorder := mgr.GetEventRecorder("nstance-operator")
	r := &problems.Reporter{
		Client: mgr.GetClient(), Shards: s.world.Set, Pods: problems.Workload{Reader: mgr.GetAPIReader(), EventRecorder: recorder},
		Recorder: recorder, Now: time.Now, Namespace: s.namespace, Cluster: clusterName,
	}
	if err := r.SetupWithManager(mgr); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("the manager: %v", err)
		}
	})
}

// pod makes a pod that asks for an instance of a group.
func (s *site) pod(name, group, node string) {
	s.t.Helper()
	s.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name, Annotations: map[string]string{v1beta1.AnnotationOnDemandGroup: group},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	})
}

// events are those of a reason, as "type kind/name: note", sorted.
func (s *site) events(reason string) (out []string) {
	s.t.Helper()
	var all eventsv1.EventList
	if err := s.plane.Client.List(s.t.Context(), &all, client.InNamespace(s.namespace)); err != nil {
		s.t.Fatal(err)
	}
	for _, e := range all.Items {
		if e.Reason == reason {
			out = append(out, fmt.Sprintf("%s %s/%s: %s", e.Type, e.Regarding.Kind, e.Regarding.Name, e.Note))
			if e.Series != nil {
				out = append(out, fmt.Sprintf("%d times %s/%s", e.Series.Count, e.Regarding.Kind, e.Regarding.Name))
			}
		}
	}
	slices.Sort(out)
	return out
}

// expect waits until exactly these events of a reason are there.
func (s *site) expect(reason string, want ...string) {
	s.t.Helper()
	slices.Sort(want)
	shardstest.Eventually(s.t, strings.Join(want, "; "), func() bool {
		have := s.events(reason)
		return len(have) >= len(want)
	})
	if have := s.events(reason); !slices.Equal(have, want) {
		s.t.Errorf("events of %s:\n%s\nwant\n%s", reason, strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// TestConcerned: a problem is told on what it concerns.
func TestConcerned(t *testing.T) {
	s := newSite(t)
	a := s.world.Shard("a")
	a.Problem("ConfigInvalid", "", "", "config/ does not validate")
	s.expect("ConfigInvalid", "Warning NstanceCluster/"+clusterName+": shard a: config/ does not validate")
	a.Problem("FilesInvalid", "web", "", "env is no JSON")
	s.expect("FilesInvalid", "Warning NstanceMachinePool/pool: shard a: env is no JSON",
		"Warning NstanceShardGroup/web--a: shard a: env is no JSON")
	a.Problem("DeleteStuck", "web", instance, "it is there still")
	s.expect("DeleteStuck", "Warning NstanceMachine/machine: shard a: it is there still")
	a.Problem("ProviderError", "web", another, "no such image") // it has no object
	s.expect("ProviderError", "Warning NstanceMachinePool/pool: shard a: no such image",
		"Warning NstanceShardGroup/web--a: shard a: no such image")
}

// TestOnceAndOver: what is told again is not told twice, whichever instance it was; its
// end is told, but not of what was never told.
func TestOnceAndOver(t *testing.T) {
	s := newSite(t)
	b := s.world.Shard("b")
	b.Problem("CreatesFailing", "web", "", "create "+instance+": refused")
	s.expect("CreatesFailing", "Warning NstanceShardGroup/web--b: shard b: create "+instance+": refused")
	b.Problem("CreatesFailing", "web", "", "create "+another+": refused")
	b.ProblemOver("LoadBalancerError", "web", "")
	b.Problem("ProviderError", "web", "", "last") // the others come before it
	s.expect("ProviderError", "Warning NstanceShardGroup/web--b: shard b: last")
	b.ProblemOver("CreatesFailing", "web", "")
	s.expect("CreatesFailing", "Normal NstanceShardGroup/web--b: shard b: it is over",
		"Warning NstanceShardGroup/web--b: shard b: create "+instance+": refused")
	if all := s.events("LoadBalancerError"); len(all) > 0 {
		t.Errorf("told the end of what never was: %v", all)
	}
}

// TestNoCapacity is told where people look first, too: on Cluster API's pool, and on the
// pods that wait for an instance of that group.
func TestNoCapacity(t *testing.T) {
	s := newSite(t)
	s.pod("waits", "web", "")
	s.pod("runs", "web", "node")
	s.pod("other", "others", "")
	a := s.world.Shard("a")
	want := func(text string) []string {
		return []string{
			"Warning MachinePool/mp: shard a: " + text, "Warning NstanceMachinePool/pool: shard a: " + text,
			"Warning NstanceShardGroup/web--a: shard a: " + text, "Warning Pod/waits: shard a: " + text,
		}
	}
	a.Problem("QuotaUsedUp", "web", another, "no more vCPU")
	s.expect("QuotaUsedUp", want("no more vCPU")...)
	a.SetCondition("web", "CreatesFailing", true, "SubnetFull", "subnet s1 is full")
	shardstest.Eventually(t, "the condition is known", func() bool {
		return len(s.world.Set.Group("a", "web").GetConditions()) > 1
	})
	a.Problem("CreatesFailing", "web", "", "subnet s1 is full")
	s.expect("CreatesFailing", want("subnet s1 is full")...)
}
