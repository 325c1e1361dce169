//go:build integration

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// applyAs applies part of an object for somebody.
func (w *world) applyAs(ctx context.Context, who, name, text string) {
	w.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		w.Fatal(err)
	}
	o.SetNamespace(w.namespace)
	o.SetName(name)
	err := w.api.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(who), client.ForceOwnership)
	if err != nil {
		w.Fatal(err)
	}
}

// versions are those of all objects that the operator writes.
func (w *world) versions(ctx context.Context) string {
	w.Helper()
	var said strings.Builder
	for _, list := range []client.ObjectList{
		&clusterv1.ClusterList{}, &clusterv1.MachinePoolList{}, &clusterv1.MachineList{}, &v1beta1.NstanceClusterList{},
		&v1beta1.NstanceControlPlaneList{}, &v1beta1.NstanceMachinePoolList{}, &v1beta1.NstanceShardGroupList{}, &v1beta1.NstanceMachineList{},
	} {
		all := &unstructured.UnstructuredList{}
		gvk, err := w.api.GroupVersionKindFor(list)
		if err != nil {
			w.Fatal(err)
		}
		all.SetGroupVersionKind(gvk)
		if err := w.api.List(ctx, all, client.InNamespace(w.namespace)); err != nil {
			w.Fatal(err)
		}
		for _, o := range all.Items {
			fmt.Fprintf(&said, "%s/%s@%s ", o.GetKind(), o.GetName(), o.GetResourceVersion())
		}
	}
	return said.String()
}
