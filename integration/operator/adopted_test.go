//go:build integration

package operator

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestObjectsThatAreMadeAnew: after a restore from a backup, or a move to another cluster, all
// objects are new and have no status. They adopt their instances, and no others are created.
func TestObjectsThatAreMadeAnew(t *testing.T) {
	f := newFixture(t, nil)
	f.operate()
	f.running("web", 4)
	for _, name := range []string{"one", "two"} {
		f.pod(name, nil)
	}
	f.onDemand(2)
	before := f.alive()

	f.operator.kill(syscall.SIGTERM)
	backup := f.pause()
	f.lose(backup)
	f.restore(f.namespace, backup, false)
	f.operator = f.start("operator")
	f.adopted(before)

	f.operator.kill(syscall.SIGTERM)
	moved, old := f.pause(), f.in(t)
	f.namespace = f.plane.Namespace(t)
	f.registration()
	f.grant()
	f.restore(f.namespace, moved, true)
	old.lose(moved)
	f.operator = f.start("operator")
	f.adopted(before)
}

// kinds are the kinds of a Cluster's objects, owners first.
func kinds() []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for _, k := range []struct{ core, ours string }{
		{"Cluster", "NstanceCluster"}, {"", "NstanceControlPlane"}, {"MachinePool", "NstanceMachinePool"}, {"", "NstanceShardGroup"},
		{"Machine", "NstanceMachine"},
	} {
		if k.core != "" {
			all = append(all, clusterv1.GroupVersion.WithKind(k.core))
		}
		all = append(all, v1beta1.GroupVersion().WithKind(k.ours))
	}
	return all
}

// pause makes controllers ignore the Cluster, and returns all of its objects. Cluster API shows
// that on a Machine only when it reconciles it for another reason.
func (f *fixture) pause() (all []unstructured.Unstructured) {
	f.Helper()
	f.pauseCluster(true)
	f.eventually("Cluster API pauses", func(ctx context.Context) error {
		var err error
		if all, err = f.objects(ctx); err != nil {
			return err
		}
		for _, o := range all {
			if kind := o.GetKind(); (kind == "Cluster" || kind == "MachinePool") && !holds(&o, "Paused") {
				return fmt.Errorf("%s %s does not", kind, o.GetName())
			}
		}
		return nil
	})
	return all
}

func (f *fixture) pauseCluster(on bool) {
	f.Helper()
	c := &clusterv1.Cluster{}
	c.Namespace, c.Name = f.namespace, clusterName
	patch := client.RawPatch(clusterMerge, fmt.Appendf(nil, `{"spec":{"paused":%t}}`, on))
	if err := f.api.Patch(f.Context(), c, patch); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) objects(ctx context.Context) (all []unstructured.Unstructured, err error) {
	for _, kind := range kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := f.api.List(ctx, list, client.InNamespace(f.namespace)); err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
	}
	return all, nil
}

func holds(o *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == condition && m["status"] == "True"
	})
}

// lose removes objects without their deletion being handled.
func (f *fixture) lose(all []unstructured.Unstructured) {
	f.Helper()
	for _, o := range slices.Backward(all) {
		o.SetNamespace(f.namespace)
		patch := client.RawPatch(clusterMerge, []byte(`{"metadata":{"finalizers":null}}`))
		if err := f.api.Patch(f.Context(), o.DeepCopy(), patch); client.IgnoreNotFound(err) != nil {
			f.Fatal(err)
		}
		if err := f.api.Delete(f.Context(), o.DeepCopy()); client.IgnoreNotFound(err) != nil {
			f.Fatal(err)
		}
	}
	f.eventually("they are gone", func(ctx context.Context) error {
		left, err := f.objects(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%s %s is there", left[0].GetKind(), left[0].GetName())
		}
		return err
	})
}

// restore recreates objects in a namespace: names, labels, annotations and spec, as backups do and
// clusterctl moves them, with their owners' new UIDs and finalizers.
func (f *fixture) restore(namespace string, all []unstructured.Unstructured, owners bool) {
	f.Helper()
	uids := map[types.UID]types.UID{}
	for _, was := range all {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": was.Object["spec"]}}
		o.SetGroupVersionKind(was.GroupVersionKind())
		o.SetNamespace(namespace)
		o.SetName(was.GetName())
		o.SetLabels(was.GetLabels())
		o.SetAnnotations(was.GetAnnotations())
		if owners {
			o.SetFinalizers(was.GetFinalizers())
			refs := was.GetOwnerReferences()
			for i := range refs {
				uid, known := uids[refs[i].UID]
				if !known {
					f.Fatalf("%s %s is owned by %s %s, which was not moved before", was.GetKind(), was.GetName(), refs[i].Kind, refs[i].Name)
				}
				refs[i].UID = uid
			}
			o.SetOwnerReferences(refs)
		}
		if err := f.api.Create(f.Context(), o); err != nil {
			f.Fatal(err)
		}
		uids[was.GetUID()] = o.GetUID()
	}
}

// adopted unpauses the Cluster, and waits until all is as before.
func (f *fixture) adopted(before []string) {
	f.Helper()
	f.consistently(5*time.Second, "nothing happens while it is paused", func(context.Context) error {
		if now := f.alive(); !slices.Equal(now, before) {
			return fmt.Errorf("instances %v, want %v", now, before)
		}
		return nil
	})
	f.pauseCluster(false)
	f.running("web", 4)
	f.onDemand(2)
	f.available()
	f.consistently(5*time.Second, "the instances are those from before", func(context.Context) error {
		if now := f.alive(); !slices.Equal(now, before) {
			return fmt.Errorf("instances %v, want %v", now, before)
		}
		return nil
	})
	if all := f.all(""); len(all) != len(before) {
		f.Errorf("%d instances were made, want %d: %+v", len(all), len(before), all)
	}
}

// alive returns the ids of all instances that are not leaving.
func (f *fixture) alive() (ids []string) {
	f.Helper()
	for _, i := range f.all("") {
		if i.Phase == "pending" || i.Phase == "running" {
			ids = append(ids, i.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
