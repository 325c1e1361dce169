package drain

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/workload"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// ambiguousError: it is unclear which Node is the instance's.
type ambiguousError = workload.AmbiguousError

// identityOf returns what an instance's Node is recognized by. The names under which it was
// found are in memory and in the objects' statuses, so a restarted operator has them too.
func (r *Reconciler) identityOf(ctx context.Context, d *drain, i *nstancev1.InstanceStatus, m machines) workload.Identity {
	w := workload.Identify(i.GetNodeProviderId(), i.GetId(), i.GetHostname(), i.GetIps())
	w.Saw(d.node)
	if m.infra != nil {
		w.Saw(m.infra.Status.NodeName)
	}
	if m.core != nil {
		w.Saw(m.core.Status.NodeRef.Name)
	}
	w.Other = func(id string) bool { return r.anothers(ctx, id) }
	return w
}

// anothers reports whether a provider ID is that of another instance's NstanceMachine. One that
// can't be read is not.
func (r *Reconciler) anothers(ctx context.Context, id string) bool {
	var all v1beta1.NstanceMachineList
	err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace), client.MatchingFields{byProviderID: id}, client.Limit(1))
	return err == nil && len(all.Items) > 0
}

// nodeOf returns an instance's Node from the API server; nil without an error if there is
// none. The cache is not proof either way: it may be disconnected, or not have seen yet that a
// Node got its provider ID, or was deleted.
func (r *Reconciler) nodeOf(ctx context.Context, w workload.Identity) (*corev1.Node, error) {
	cached, err := r.Workload.NodesWith(ctx, w)
	if err != nil {
		return nil, err
	}
	if n, err := w.Choose(cached); err == nil && n != nil {
		var now corev1.Node
		if err := r.Workload.Reader().Get(ctx, client.ObjectKeyFromObject(n), &now); client.IgnoreNotFound(err) != nil {
			return nil, err
		} else if err == nil && now.UID == n.UID && now.Spec.ProviderID == n.Spec.ProviderID {
			return &now, nil
		}
	}
	if err := r.Workload.Err(); err != nil {
		return nil, err
	}
	return nodeWith(ctx, r.Workload.Reader(), w)
}

// nodesAtOnce is the page size of a list of Nodes.
const nodesAtOnce = 500

// nodeWith chooses out of all Nodes, read uncached.
func nodeWith(ctx context.Context, api client.Reader, w workload.Identity) (*corev1.Node, error) {
	var mine []corev1.Node
	for from := ""; ; {
		var page corev1.NodeList
		if err := api.List(ctx, &page, client.Limit(nodesAtOnce), client.Continue(from)); err != nil {
			return nil, err
		}
		for i := range page.Items {
			if w.MayBe(&page.Items[i]) {
				mine = append(mine, page.Items[i])
			}
		}
		if from = page.Continue; from == "" {
			return w.Choose(mine)
		}
	}
}

// still reports whether an empty node is certainly the instance's, since the machine is
// removed once that is acknowledged. A Node of another name may be a second one with the same
// claim.
func (r *Reconciler) still(ctx context.Context, w workload.Identity, node *corev1.Node) (bool, error) {
	if w.Proven(node) {
		return true, nil
	}
	now, err := nodeWith(ctx, r.Workload.Reader(), w)
	return err == nil && now != nil && now.UID == node.UID, err
}

// unlessAmbiguous returns nil for an ambiguousError, which is reported instead of retried
// soon.
func unlessAmbiguous(err error) error {
	if errors.As(err, new(*ambiguousError)) {
		return nil
	}
	return err
}
