package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
)

// AnnotationFromPool on a Node says which of its labels and taints come from its pool,
// so that they go when the pool has them no more; and that the Node has been through
// its beginning.
const AnnotationFromPool = "nstance.dev/from-pool"

// fromPool is the annotation's value.
type fromPool struct {
	Labels []string `json:"labels,omitempty"` // keys
	Taints []string `json:"taints,omitempty"` // key and effect, with a colon between
}

// nodesLostError: nodes could not be read, which says nothing about them.
type nodesLostError struct{ err error }

func (e *nodesLostError) Error() string { return "read nodes: " + e.err.Error() }
func (e *nodesLostError) Unwrap() error { return e.err }

// keepNodes puts the pool's labels and taints on its nodes, and returns these; none if
// they can't all be read.
func (r *Reconciler) keepNodes(ctx context.Context, s *scope) ([]*corev1.Node, error) {
	var nodes []*corev1.Node
	for _, id := range s.pool.Spec.ProviderIDList {
		node, err := r.Nodes.NodeByProviderID(ctx, id)
		if err != nil {
			return nil, &nodesLostError{err}
		}
		if node != nil && node.DeletionTimestamp.IsZero() {
			nodes = append(nodes, node)
		}
	}
	spec, err := r.specFor(ctx, s, nodes)
	if err != nil {
		return nodes, err
	}
	var errs []error
	for _, node := range nodes {
		if err := r.dress(ctx, spec, node); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("label or taint node %s: %w", node.Name, err))
		}
	}
	return nodes, errors.Join(errs...)
}

// specFor is the pool's spec by which nodes are dressed. A taint for the beginning is
// never set later, so a new node needs the spec as it is, past the cache.
func (r *Reconciler) specFor(ctx context.Context, s *scope, nodes []*corev1.Node) (*v1beta1.NstanceMachinePoolSpec, error) {
	if !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { _, seen := n.Annotations[AnnotationFromPool]; return !seen }) {
		return &s.pool.Spec, nil
	}
	var now v1beta1.NstanceMachinePool
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(s.pool), &now); err != nil {
		return nil, fmt.Errorf("read the pool for its new nodes: %w", err)
	}
	return &now.Spec, nil
}

// dress writes what a node lacks. The lock is for the taints, which are one list that
// others write too.
func (r *Reconciler) dress(ctx context.Context, spec *v1beta1.NstanceMachinePoolSpec, node *corev1.Node) error {
	changed := node.DeepCopy()
	dressed(changed, spec.NodeLabels, spec.NodeTaints)
	if reflect.DeepEqual(changed.Labels, node.Labels) && reflect.DeepEqual(changed.Annotations, node.Annotations) &&
		reflect.DeepEqual(changed.Spec.Taints, node.Spec.Taints) {
		return nil
	}
	locked := capi.Locked(node)
	return r.Nodes.Client().Patch(ctx, changed, locked, capi.FieldOwner)
}

// dressed changes a node's labels and taints to what its pool wants. A taint for the
// beginning is set only on a node that has not been seen before; one that is always
// wanted goes when it is wanted no more.
func dressed(node *corev1.Node, labels map[string]string, taints []clusterv1.MachineTaint) {
	var before, now fromPool
	text, seen := node.Annotations[AnnotationFromPool]
	if json.Unmarshal([]byte(text), &before) != nil {
		before = fromPool{} // somebody else has written it: then nothing is known to be ours
	}
	for _, key := range before.Labels {
		if _, wanted := labels[key]; !wanted {
			delete(node.Labels, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if value, has := node.Labels[key]; !has || value != labels[key] {
			metav1.SetMetaDataLabel(&node.ObjectMeta, key, labels[key])
		}
		now.Labels = append(now.Labels, key)
	}
	wanted := map[string]bool{}
	for _, t := range taints {
		wanted[taintKey(t.Key, t.Effect)] = true
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		key := taintKey(t.Key, t.Effect)
		return slices.Contains(before.Taints, key) && !wanted[key]
	})
	for _, t := range taints {
		if t.Propagation == clusterv1.MachineTaintPropagationAlways {
			now.Taints = append(now.Taints, taintKey(t.Key, t.Effect))
		} else if seen {
			continue
		}
		setTaint(node, t)
	}
	if len(node.Spec.Taints) == 0 {
		node.Spec.Taints = nil
	}
	slices.Sort(now.Taints)
	if data, err := json.Marshal(now); err == nil && string(data) != text {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, AnnotationFromPool, string(data))
	}
}

func setTaint(node *corev1.Node, want clusterv1.MachineTaint) {
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.Key == want.Key && t.Effect == want.Effect {
			t.Value = want.Value
			return
		}
	}
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: want.Key, Value: want.Value, Effect: want.Effect})
}

func taintKey(key string, effect corev1.TaintEffect) string { return key + ":" + string(effect) }
