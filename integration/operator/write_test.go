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

// applyAs applies part of an object as another field owner.
func (f *fixture) applyAs(ctx context.Context, who, name, text string) {
	f.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		f.Fatal(err)
	}
	o.SetNamespace(f.namespace)
	o.SetName(name)
	err := f.api.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(who), client.ForceOwnership)
	if err != nil {
		f.Fatal(err)
	}
}

// versions returns those of all objects that the operator writes.
func (f *fixture) versions(ctx context.Context) string {
	f.Helper()
	var said strings.Builder
	for _, list := range []client.ObjectList{
		&clusterv1.ClusterList{}, &clusterv1.MachinePoolList{}, &clusterv1.MachineList{}, &v1beta1.NstanceClusterList{},
		&v1beta1.NstanceControlPlaneList{}, &v1beta1.NstanceMachinePoolList{}, &v1beta1.NstanceShardGroupList{}, &v1beta1.NstanceMachineList{},
	} {
		all := &unstructured.UnstructuredList{}
		gvk, err := f.api.GroupVersionKindFor(list)
		if err != nil {
			f.Fatal(err)
		}
		all.SetGroupVersionKind(gvk)
		if err := f.api.List(ctx, all, client.InNamespace(f.namespace)); err != nil {
			f.Fatal(err)
		}
		for _, o := range all.Items {
			fmt.Fprintf(&said, "%s/%s@%s ", o.GetKind(), o.GetName(), o.GetResourceVersion())
		}
	}
	return said.String()
}
