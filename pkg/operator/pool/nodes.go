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
	"github.com/nstance/nstance/pkg/operator/workload"
)

// AnnotationFromPool on a Node lists the labels and taints that come from its pool, so that
// they are removed when the pool drops them. It also shows that taints for initialization were
// set once.
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

// syncNodes sets the pool's labels and taints on its nodes and on those of its group's
// on-demand machines, and returns its nodes; none if they can't all be read.
func (r *Reconciler) syncNodes(ctx context.Context, s *scope) ([]*corev1.Node, error) {
	nodes, err := nodesWith(ctx, r.Nodes, s.pool.Spec.ProviderIDList, identities(r.Shards, s))
	if err != nil {
		return nil, err
	}
	beside, err := nodesWith(ctx, r.Nodes, s.onDemand, nil)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(nodes, beside)
	spec, err := r.specFor(ctx, s, all)
	if err != nil {
		return nodes, err
	}
	var errs []error
	for _, node := range all {
		if err := r.dress(ctx, spec, node); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("label or taint node %s: %w", node.Name, err))
		}
	}
	return nodes, errors.Join(errs...)
}

// nodesWith returns the nodes of machines; known has what they are recognized by beside the
// provider ID.
func nodesWith(ctx context.Context, from Nodes, ids []string, known map[string]workload.Identity) (nodes []*corev1.Node, err error) {
	for _, id := range ids {
		node, err := nodeOf(ctx, from, known[id], id)
		if err != nil {
			return nil, &nodesLostError{err}
		}
		if node != nil && node.DeletionTimestamp.IsZero() {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// identities returns what the nodes of the pool's machines are recognized by, by provider ID.
func identities(from Shards, s *scope) map[string]workload.Identity {
	all := make(map[string]workload.Identity, len(s.infra))
	for _, m := range s.infra {
		if m.Spec.ProviderID == "" {
			continue
		}
		i := from.Instance(string(m.Spec.Shard), string(m.Spec.InstanceID))
		w := workload.Identify(m.Spec.ProviderID, string(m.Spec.InstanceID), i.GetHostname(), i.GetIps())
		w.Saw(m.Status.NodeName)
		w.Other = func(id string) bool { return slices.Contains(s.pool.Spec.ProviderIDList, id) }
		all[m.Spec.ProviderID] = w
	}
	return all
}

// nodeOf returns the node of a machine of the pool; nil if there is none, or if it is unclear
// which one it is.
func nodeOf(ctx context.Context, from Nodes, w workload.Identity, id string) (*corev1.Node, error) {
	w.ProviderID = id
	node, err := from.NodeOf(ctx, w)
	if errors.As(err, new(*workload.AmbiguousError)) {
		return nil, nil //nolint:nilnil // documented
	}
	return node, err
}

// specFor returns the pool's spec for its nodes. A taint for initialization is never set
// later, so a new node needs the current spec, read uncached.
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

// dress patches a node if its labels or taints differ. The patch is conditional because of the
// taints, a single list that others write too.
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

// dressed sets a node's labels and taints to what its pool wants. A taint for initialization
// is set only on a node that is seen for the first time; an always-wanted taint is removed
// when the pool drops it.
func dressed(node *corev1.Node, labels map[string]string, taints []clusterv1.MachineTaint) {
	var before, now fromPool
	text, seen := node.Annotations[AnnotationFromPool]
	if json.Unmarshal([]byte(text), &before) != nil {
		before = fromPool{} // invalid: nothing is known to be ours
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
