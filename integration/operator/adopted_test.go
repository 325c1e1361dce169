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
	"github.com/nstance/nstance/pkg/operator/planetest"
)

// TestObjectsThatAreMadeAnew: after a restore from a backup, and after a move to another
// place, all objects are others and have no status. Their instances are taken as they
// are, and no other one is made.
func TestObjectsThatAreMadeAnew(t *testing.T) {
	w := begin(t, nil)
	w.operate()
	w.running("web", 4)
	for _, name := range []string{"one", "two"} {
		w.pod(name, nil)
	}
	w.onDemand(2)
	before := w.alive()

	w.operator.kill(syscall.SIGTERM)
	backup := w.pause()
	w.lose(backup)
	w.restore(w.namespace, backup, false)
	w.operator = w.start("operator")
	w.adopted(before)

	w.operator.kill(syscall.SIGTERM)
	moved, old := w.pause(), w.in(t)
	w.namespace = w.plane.Namespace(t)
	w.registration()
	w.grant()
	w.restore(w.namespace, moved, true)
	old.lose(moved)
	w.operator = w.start("operator")
	w.adopted(before)
}

// kinds are those of a Cluster's objects, owners first.
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

// pause has nobody work on the Cluster any more, and returns all of its objects. Cluster
// API notes it on a Machine only when it next looks at that for another reason.
func (w *world) pause() (all []unstructured.Unstructured) {
	w.Helper()
	w.pauseCluster(true)
	w.eventually("Cluster API pauses", func(ctx context.Context) error {
		var err error
		if all, err = w.objects(ctx); err != nil {
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

func (w *world) pauseCluster(on bool) {
	w.Helper()
	c := &clusterv1.Cluster{}
	c.Namespace, c.Name = w.namespace, clusterName
	patch := client.RawPatch(clusterMerge, fmt.Appendf(nil, `{"spec":{"paused":%t}}`, on))
	if err := w.api.Patch(w.Context(), c, patch); err != nil {
		w.Fatal(err)
	}
}

func (w *world) objects(ctx context.Context) (all []unstructured.Unstructured, err error) {
	for _, kind := range kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := w.api.List(ctx, list, client.InNamespace(w.namespace)); err != nil {
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

// lose takes objects away without anybody's doing.
func (w *world) lose(all []unstructured.Unstructured) {
	w.Helper()
	for _, o := range slices.Backward(all) {
		o.SetNamespace(w.namespace)
		patch := client.RawPatch(clusterMerge, []byte(`{"metadata":{"finalizers":null}}`))
		if err := w.api.Patch(w.Context(), o.DeepCopy(), patch); client.IgnoreNotFound(err) != nil {
			w.Fatal(err)
		}
		if err := w.api.Delete(w.Context(), o.DeepCopy()); client.IgnoreNotFound(err) != nil {
			w.Fatal(err)
		}
	}
	w.eventually("they are gone", func(ctx context.Context) error {
		left, err := w.objects(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%s %s is there", left[0].GetKind(), left[0].GetName())
		}
		return err
	})
}

// restore makes objects anew in a namespace: names, labels, annotations and spec, as
// backups do, or as clusterctl moves them, with their owners' new UIDs and finalizers.
func (w *world) restore(namespace string, all []unstructured.Unstructured, owners bool) {
	w.Helper()
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
					w.Fatalf("%s %s is owned by %s %s, which was not moved before", was.GetKind(), was.GetName(), refs[i].Kind, refs[i].Name)
				}
				refs[i].UID = uid
			}
			o.SetOwnerReferences(refs)
		}
		if err := w.api.Create(w.Context(), o); err != nil {
			w.Fatal(err)
		}
		uids[was.GetUID()] = o.GetUID()
	}
}

// adopted starts work on the Cluster again, and waits until all is as it was.
func (w *world) adopted(before []string) {
	w.Helper()
	planetest.Consistently(w.T, 5*time.Second, "nothing happens while it is paused", func(context.Context) error {
		if now := w.alive(); !slices.Equal(now, before) {
			return fmt.Errorf("instances %v, want %v", now, before)
		}
		return nil
	})
	w.pauseCluster(false)
	w.running("web", 4)
	w.onDemand(2)
	w.available()
	planetest.Consistently(w.T, 5*time.Second, "the instances are those from before", func(context.Context) error {
		if now := w.alive(); !slices.Equal(now, before) {
			return fmt.Errorf("instances %v, want %v", now, before)
		}
		return nil
	})
	if all := w.all(""); len(all) != len(before) {
		w.Errorf("%d instances were made, want %d: %+v", len(all), len(before), all)
	}
}

// alive are the ids of all instances that are not leaving.
func (w *world) alive() (ids []string) {
	w.Helper()
	for _, i := range w.all("") {
		if i.Phase == "pending" || i.Phase == "running" {
			ids = append(ids, i.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
