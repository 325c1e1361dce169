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

// fixture is a namespace with objects of a group on two shards, of a machine, and of the
// cluster, where the reporter runs.
type fixture struct {
	cached    client.Client // the operator's
	t         *testing.T
	plane     *planetest.Plane
	world     *shardstest.World
	namespace string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, plane: shared.Plane(t), world: shardstest.Start(t, "a", "b")}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "problems-"}}
	f.create(ns)
	f.namespace = ns.Name
	f.world.Shard("a").Static("web", 0, "knd")
	f.world.Synced()
	mp := &clusterv1.MachinePool{ObjectMeta: f.meta("mp"), Spec: clusterv1.MachinePoolSpec{
		ClusterName: clusterName, Template: clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
			ClusterName: clusterName, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: v1beta1.GroupVersion().Group, Kind: "NstanceMachinePool", Name: "pool",
			},
		}},
	}}
	f.create(mp)
	pool := &v1beta1.NstanceMachinePool{
		ObjectMeta: f.meta("pool"), Spec: v1beta1.NstanceMachinePoolSpec{Group: "web", Shards: []v1beta1.Name{"a"}},
	}
	pool.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "MachinePool", Name: mp.Name, UID: mp.UID,
	}}
	f.create(pool)
	for _, shard := range []v1beta1.Name{"a", "b"} {
		f.create(&v1beta1.NstanceShardGroup{
			ObjectMeta: f.meta("web--" + string(shard)), Spec: v1beta1.NstanceShardGroupSpec{Group: "web", Shard: shard, Size: new(int32(0))},
		})
	}
	f.create(&v1beta1.NstanceMachine{ObjectMeta: f.meta("machine"), Spec: v1beta1.NstanceMachineSpec{
		Group: "web", Shard: "a", IdempotencyKey: "key", InstanceID: instance,
	}})
	f.create(&v1beta1.NstanceCluster{ObjectMeta: f.meta(clusterName)})
	f.start()
	return f
}

func (f *fixture) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}}
}

func (f *fixture) create(o client.Object) {
	f.t.Helper()
	if err := f.plane.Client.Create(f.t.Context(), o); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) start() {
	f.t.Helper()
	mgr, err := ctrl.NewManager(f.plane.Config, f.plane.ManagerOptions(f.namespace))
	if err != nil {
		f.t.Fatal(err)
	}
	recorder := mgr.GetEventRecorder("nstance-operator")
	f.cached = mgr.GetClient()
	r := &problems.Reporter{
		Client: mgr.GetClient(), Shards: f.world.Set, Pods: problems.Workload{Reader: mgr.GetAPIReader(), EventRecorder: recorder},
		Recorder: recorder, Now: time.Now, Namespace: f.namespace, Cluster: clusterName,
	}
	if err := r.SetupWithManager(mgr); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("the manager: %v", err)
		}
	})
}

// served is pod, for which an instance was asked of a shard.
func (f *fixture) served(name, group, node, shard string) {
	f.t.Helper()
	meta := f.meta("for-" + name)
	meta.Labels[v1beta1.LabelPodUID] = string(f.pod(name, group, node).UID)
	f.create(&v1beta1.NstanceMachine{
		ObjectMeta: meta, Spec: v1beta1.NstanceMachineSpec{Group: v1beta1.Name(group), Shard: v1beta1.Name(shard)},
	})
}

// pod makes a pod that asks for an instance of a group.
func (f *fixture) pod(name, group, node string) *corev1.Pod {
	f.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: name, Annotations: map[string]string{v1beta1.AnnotationOnDemandGroup: group},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
	f.create(p)
	return p
}

// events are those of a reason, as "type kind/name: note", sorted.
func (f *fixture) events(reason string) (out []string) {
	f.t.Helper()
	var all eventsv1.EventList
	if err := f.plane.Client.List(f.t.Context(), &all, client.InNamespace(f.namespace)); err != nil {
		f.t.Fatal(err)
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
func (f *fixture) expect(reason string, want ...string) {
	f.t.Helper()
	slices.Sort(want)
	shardstest.Eventually(f.t, strings.Join(want, "; "), func() bool {
		have := f.events(reason)
		return len(have) >= len(want)
	})
	if have := f.events(reason); !slices.Equal(have, want) {
		f.t.Errorf("events of %s:\n%s\nwant\n%s", reason, strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// TestConcerned: a problem is told on what it concerns.
func TestConcerned(t *testing.T) {
	f := newFixture(t)
	a := f.world.Shard("a")
	a.Problem("ConfigInvalid", "", "", "config/ does not validate")
	f.expect("ConfigInvalid", "Warning NstanceCluster/"+clusterName+": shard a: config/ does not validate")
	a.Problem("FilesInvalid", "web", "", "env is no JSON")
	f.expect("FilesInvalid", "Warning NstanceMachinePool/pool: shard a: env is no JSON",
		"Warning NstanceShardGroup/web--a: shard a: env is no JSON")
	a.Problem("DeleteStuck", "web", instance, "it is there still")
	f.expect("DeleteStuck", "Warning NstanceMachine/machine: shard a: it is there still")
	a.Problem("ProviderError", "web", another, "no such image") // it has no object
	f.expect("ProviderError", "Warning NstanceMachinePool/pool: shard a: no such image",
		"Warning NstanceShardGroup/web--a: shard a: no such image")
}

// TestOnceAndOver: a repeated problem is recorded once, whichever instance it concerns; its
// end is recorded if the problem was.
func TestOnceAndOver(t *testing.T) {
	f := newFixture(t)
	b := f.world.Shard("b")
	b.Problem("CreatesFailing", "web", "", "create "+instance+": refused")
	f.expect("CreatesFailing", "Warning NstanceShardGroup/web--b: shard b: create "+instance+": refused")
	b.Problem("CreatesFailing", "web", "", "create "+another+": refused")
	b.ProblemOver("LoadBalancerError", "web", "")
	b.Problem("ProviderError", "web", "", "last") // the others come before it
	f.expect("ProviderError", "Warning NstanceShardGroup/web--b: shard b: last")
	b.ProblemOver("CreatesFailing", "web", "")
	f.expect("CreatesFailing", "Normal NstanceShardGroup/web--b: shard b: resolved",
		"Warning NstanceShardGroup/web--b: shard b: create "+instance+": refused")
	if all := f.events("LoadBalancerError"); len(all) > 0 {
		t.Errorf("told the end of what never was: %v", all)
	}
}

// TestNoCapacity is told where people look first, too: on Cluster API's pool, and on the
// pods that wait for an instance of that group on that shard; but not on those that only
// name a group so, as another tenant's pods may.
func TestNoCapacity(t *testing.T) {
	f := newFixture(t)
	f.served("waits", "web", "", "a")
	f.served("elsewhere", "web", "", "b")
	f.served("runs", "web", "node", "a")
	f.served("other", "others", "", "a")
	f.pod("not-served", "web", "")
	shardstest.Eventually(f.t, "what was made for the pods is seen", func() bool {
		var all v1beta1.NstanceMachineList
		if err := f.cached.List(f.t.Context(), &all, client.HasLabels{v1beta1.LabelPodUID}); err != nil {
			f.t.Fatal(err)
		}
		return len(all.Items) == 4
	})
	a := f.world.Shard("a")
	want := func(text string) []string {
		return []string{
			"Warning MachinePool/mp: shard a: " + text, "Warning NstanceMachinePool/pool: shard a: " + text,
			"Warning NstanceShardGroup/web--a: shard a: " + text, "Warning Pod/waits: shard a: " + text,
		}
	}
	a.Problem("QuotaUsedUp", "web", another, "no more vCPU")
	f.expect("QuotaUsedUp", want("no more vCPU")...)
	a.SetCondition("web", "CreatesFailing", true, "SubnetFull", "subnet s1 is full")
	shardstest.Eventually(t, "the condition is known", func() bool {
		return len(f.world.Set.Group("a", "web").GetConditions()) > 1
	})
	a.Problem("CreatesFailing", "web", "", "subnet s1 is full")
	f.expect("CreatesFailing", want("subnet s1 is full")...)
}
