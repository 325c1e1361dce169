//go:build !roles

package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	kubeScalings  = 200
	kubePods      = 20
	kubeMachines  = 500
	kubeGroups    = 200 // which are observed repeatedly
	kubeInstances = 1000

	scalingTarget = 250 * time.Millisecond
	podTarget     = 200 * time.Millisecond
)

// measureKubernetes measures the operator on a control plane with Cluster API's core.
func measureKubernetes(ctx context.Context, b *bench) (figures []figure, err error) {
	for _, part := range []func(*bench, *harness, *planetest.Plane) ([]figure, error){
		scalings, podsAndMachines, unchanged, manyGroups, operatorMemory,
	} {
		err := within(ctx, func(h *harness) error { //nolint:contextcheck // the harness has it
			var shared planetest.SharedCore // one each: Cluster API continues to process what a part leaves
			h.Cleanup(func() {
				if err := shared.Stop(); err != nil {
					h.Error(err)
				}
			})
			more, err := part(b, h, shared.Plane(h))
			figures = append(figures, more...)
			return err
		})
		if err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// scalings measures from the API server's confirmation of a new number of replicas until the
// shards' sizes add up to it.
func scalings(_ *bench, h *harness, plane *planetest.Plane) ([]figure, error) {
	w := newKubeWorld(h, plane)
	for _, id := range []string{kubeOne, kubeTwo} {
		w.shards.Shard(id).AddGroup("web", 1, "knd")
	}
	w.operate()
	w.pools(1)
	w.machines(2)
	var took spread
	for n := range kubeScalings {
		want := int32(2 + n%3)
		if n%3 == 0 {
			want = 5
		}
		accepted := w.scale("web", want)
		w.until("the shards have their sizes", func() bool { return w.size("web") == want })
		took = append(took, time.Since(accepted))
	}
	return []figure{
		newFigure("kube_scale_p50", milliseconds(took.median()), "ms", len(took)),
		newFigure("kube_scale_p99", milliseconds(took.p99()), "ms", len(took)).atMost(milliseconds(scalingTarget)).
			noted("a smaller number waits 50 ms for names of machines first"),
	}, nil
}

// size returns the sum of a group's sizes on all shards.
func (w *kubeWorld) size(group string) (sum int32) {
	for _, id := range []string{kubeOne, kubeTwo} {
		sum += w.shards.Shard(id).Group(group).GetSize()
	}
	return sum
}

// podsAndMachines measures from an annotated pod to its instance, and from many Machines to ready
// instances.
func podsAndMachines(_ *bench, h *harness, plane *planetest.Plane) ([]figure, error) {
	w := newKubeWorld(h, plane)
	shard := w.shards.Shard(kubeOne)
	shard.AddGroup("jobs", 0, "knd")
	shard.AllowPods("jobs", &nstancev1.OnDemand{Namespaces: []string{"*"}, Max: 10_000})
	w.operate()
	w.pools(1)
	var took spread
	for n := range kubePods {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.ns, Name: fmt.Sprintf("job-%d", n), Annotations: map[string]string{v1beta1.AnnotationOnDemandGroup: "jobs"},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
		}
		before := len(shard.Instances("jobs"))
		w.must(plane.Client.Create(w.ctx, pod))
		accepted := time.Now()
		w.until("the pod's instance is there", func() bool { return len(shard.Instances("jobs")) > before })
		took = append(took, time.Since(accepted))
	}
	w.machines(kubePods)
	began := time.Now()
	many, _ := errgroup.WithContext(w.ctx)
	many.SetLimit(16)
	for n := range kubeMachines {
		many.Go(func() error { return w.machine(fmt.Sprintf("many-%d", n), "jobs") })
	}
	w.must(many.Wait())
	w.machines(kubePods + kubeMachines)
	return []figure{
		newFigure("kube_pod_p50", milliseconds(took.median()), "ms", len(took)),
		newFigure("kube_pod_p99", milliseconds(took.p99()), "ms", len(took)).atMost(milliseconds(podTarget)),
		newFigure("kube_500_machines", time.Since(began).Seconds(), "s", kubeMachines).atMost(30).
			noted("the writes of 1,000 objects are in it, and what Cluster API's core does with them"),
	}, nil
}

// machine creates a Machine whose infrastructure is an instance of a group.
func (w *kubeWorld) machine(name, group string) error {
	at := metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: kubeCluster}}
	infra := &v1beta1.NstanceMachine{ObjectMeta: at, Spec: v1beta1.NstanceMachineSpec{Group: v1beta1.Name(group)}}
	if err := w.plane.Client.Create(w.ctx, infra); err != nil {
		return err
	}
	ref := clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceMachine", Name: name}
	return w.plane.Client.Create(w.ctx, &clusterv1.Machine{ObjectMeta: at, Spec: clusterv1.MachineSpec{
		ClusterName: kubeCluster, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("")}, InfrastructureRef: ref,
	}})
}

// countReady counts the ready objects, and describes one that is not.
func countReady(all []v1beta1.NstanceMachine) (ready int, other string) {
	for i := range all {
		if meta.IsStatusConditionTrue(all[i].Status.Conditions, v1beta1.ConditionReady) {
			ready++
		} else {
			other = fmt.Sprintf("%s: %+v", all[i].Name, all[i].Status.Conditions)
		}
	}
	return ready, other
}

// unchanged measures the writes of an operator that starts where nothing differs: it reconciles
// everything, as a resync does.
func unchanged(_ *bench, h *harness, plane *planetest.Plane) ([]figure, error) {
	w := newKubeWorld(h, plane)
	for _, id := range []string{kubeOne, kubeTwo} {
		for n := range kubeGroups / 2 {
			w.shards.Shard(id).AddGroup(fmt.Sprintf("group-%d", n), 0, "knd")
		}
	}
	stop := w.operate()
	w.pools(kubeGroups / 2)
	before := w.settledVersions()
	stop()
	calls, watches := w.upserts(), w.calls("WatchInstances")
	w.operate()
	shardstest.Eventually(h, "it follows both shards", func() bool { return w.calls("WatchInstances") >= watches+2 })
	after := w.settledVersions()
	writes := 0
	for name, version := range after {
		if before[name] != version {
			writes++
		}
	}
	return []figure{
		newFigure("kube_resync_200_groups_writes", float64(writes), "objects", kubeGroups).atMost(0),
		newFigure("kube_resync_200_groups_upserts", float64(w.upserts()-calls), "calls", kubeGroups).atMost(0),
	}, nil
}

func (w *kubeWorld) upserts() int { return w.calls("UpsertGroup") }

func (w *kubeWorld) calls(method string) int {
	return len(w.shards.Shard(kubeOne).Calls(method)) + len(w.shards.Shard(kubeTwo).Calls(method))
}

// settledVersions returns the versions of the operator's objects once they have stayed the same for
// five seconds.
func (w *kubeWorld) settledVersions() map[string]string {
	since, last := time.Now(), map[string]string{}
	for limit := time.Now().Add(3 * time.Minute); time.Since(since) < 5*time.Second; time.Sleep(250 * time.Millisecond) {
		now := w.versions()
		if !maps.Equal(now, last) {
			since, last = time.Now(), now
		}
		if time.Now().After(limit) {
			w.Fatal("something is written all the time")
		}
	}
	return last
}

func (w *kubeWorld) versions() map[string]string {
	all := map[string]string{}
	for _, list := range []client.ObjectList{
		&v1beta1.NstanceMachinePoolList{}, &v1beta1.NstanceShardGroupList{}, &v1beta1.NstanceMachineList{}, &v1beta1.NstanceClusterList{},
		&clusterv1.MachinePoolList{}, &clusterv1.ClusterList{},
	} {
		w.must(w.plane.Client.List(w.ctx, list, client.InNamespace(w.ns)))
		items, err := meta.ExtractList(list)
		w.must(err)
		for _, item := range items {
			if o, ok := item.(client.Object); ok {
				all[fmt.Sprintf("%T %s", o, o.GetName())] = o.GetResourceVersion()
			}
		}
	}
	return all
}
