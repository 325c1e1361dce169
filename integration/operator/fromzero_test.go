//go:build integration

package operator

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// scalesFromZero: while there is no node the Cluster Autoscaler reads a description of a future
// one, and the node that is then created matches it.
func (a autoscaler) scalesFromZero() {
	infra := &v1beta1.NstanceMachinePool{}
	infra.Namespace, infra.Name = a.namespace, a.name
	patch := `{"spec":{"nodeLabels":{"example.com/tier":"front"},
		"nodeTaints":[{"key":"example.com/only","value":"web","effect":"NoSchedule","propagation":"Always"}]}}`
	if err := a.api.Patch(a.Context(), infra, client.RawPatch(clusterMerge, []byte(patch))); err != nil {
		a.Fatal(err)
	}
	a.scale(a.name, 0)
	a.settled(a.name, 0)
	a.eventually("the pool says what a node would be like", func(ctx context.Context) error {
		has, info, err := a.node(ctx)
		switch {
		case err != nil:
			return err
		case has.Cpu().IsZero() || has.Memory().IsZero():
			return fmt.Errorf("capacity %v: it would not scale from zero", has)
		case info["architecture"] == "" || info["operatingSystem"] != "linux":
			return fmt.Errorf("node info %v", info)
		}
		annotations := a.pool(ctx).GetAnnotations()
		if annotations[capacityPrefix+"labels"] != "example.com/tier=front" ||
			annotations[capacityPrefix+"taints"] != "example.com/only=web:NoSchedule" {
			return fmt.Errorf("annotations %v", annotations)
		}
		return nil
	})
	a.annotate(map[string]string{capacityPrefix + "cpu": "3", capacityPrefix + "maxPods": "17"})
	if has, _, err := a.node(a.Context()); err != nil || has.Cpu().Value() != 3 || has.Pods().Value() != 17 || has.Memory().IsZero() {
		a.Errorf("what was set by hand comes first: %v, %v", has, err)
	}

	a.scale(a.name, 1)
	a.running(a.name, 1)
	id := a.settled(a.name, 1)[0]
	a.eventually("the node is what was said", func(ctx context.Context) error {
		var n corev1.Node
		if err := a.api.Get(ctx, client.ObjectKey{Name: id}, &n); err != nil {
			return err
		}
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == "example.com/only" && t.Value == "web" && t.Effect == corev1.TaintEffectNoSchedule
		})
		if n.Labels["example.com/tier"] != "front" || !tainted {
			return fmt.Errorf("labels %v, taints %v", n.Labels, n.Spec.Taints)
		}
		return nil
	})
	annotations := a.pool(a.Context()).GetAnnotations()
	for key, want := range map[string]string{minSize: "0", maxSize: "6", capacityPrefix + "cpu": "3", capacityPrefix + "maxPods": "17"} {
		if annotations[key] != want {
			a.Errorf("annotation %s is %q, want %q", key, annotations[key], want)
		}
	}
}

// node returns the Cluster Autoscaler's description of a pool without nodes: that of the
// infrastructure, overridden by annotations of the MachinePool.
func (a autoscaler) node(ctx context.Context) (has corev1.ResourceList, info map[string]string, err error) {
	pool := a.pool(ctx)
	ref, found, err := unstructured.NestedStringMap(pool.Object, "spec", "template", "spec", "infrastructureRef")
	if err != nil || !found {
		return nil, nil, fmt.Errorf("infrastructureRef %v: %w", ref, err)
	}
	infra := &unstructured.Unstructured{}
	infra.SetGroupVersionKind(v1beta1.GroupVersion().WithKind(ref["kind"]))
	if err := a.get(ctx, ref["name"], infra); err != nil {
		return nil, nil, err
	}
	// It reads them as maps of strings, and ignores others.
	said, _, err := unstructured.NestedStringMap(infra.Object, "status", "capacity")
	if err != nil {
		return nil, nil, err
	}
	if info, _, err = unstructured.NestedStringMap(infra.Object, "status", "nodeInfo"); err != nil {
		return nil, nil, err
	}
	annotations := pool.GetAnnotations()
	for name, key := range map[string]string{"cpu": "cpu", "memory": "memory", "pods": "maxPods"} {
		if v := annotations[capacityPrefix+key]; v != "" {
			if said == nil {
				said = map[string]string{}
			}
			said[name] = v
		}
	}
	has = corev1.ResourceList{}
	for name, v := range said {
		q, err := resource.ParseQuantity(v)
		if err != nil {
			return nil, nil, err
		}
		has[corev1.ResourceName(name)] = q
	}
	return has, info, nil
}
