package cluster

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// letGo handles a Cluster that is being or has been deleted. The kubeconfig stays, and stays
// valid, as long as it may be needed.
func (r *Reconciler) letGo(ctx context.Context, s *state) (ctrl.Result, error) {
	needed, err := r.needed(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if needed {
		if s.secret == nil {
			return ctrl.Result{}, nil
		}
		wait, err := r.kubeconfig(ctx, s)
		return ctrl.Result{RequeueAfter: wait}, err
	}
	if s.secret != nil && r.Endpoint == "" {
		if err := r.Client.Delete(ctx, s.secret); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("delete Secret %s: %w", s.secret.Name, err)
		}
	}
	if s.infra != nil && !s.infra.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.release(ctx, s.infra)
	}
	if s.cluster == nil && !r.told {
		r.told = true
		ctrl.LoggerFrom(ctx).Info("the Cluster was deleted: it is not created again until the operator restarts", "cluster", r.Name)
	}
	return ctrl.Result{}, nil
}

// needed reports whether the kubeconfig may still be needed: Cluster API deletes the
// infrastructure after the machines.
func (r *Reconciler) needed(ctx context.Context, s *state) (bool, error) {
	if s.cluster != nil && (s.infra == nil || s.infra.DeletionTimestamp.IsZero()) {
		return true, nil
	}
	for _, from := range []client.Reader{r.Client, r.Reader} { // the cache may be stale
		left, err := r.left(ctx, from)
		if left || err != nil {
			return left, err
		}
	}
	return false, nil
}

// left reports whether there are pools or machines of the Cluster.
func (r *Reconciler) left(ctx context.Context, from client.Reader) (bool, error) {
	of := []client.ListOption{client.InNamespace(r.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: r.Name}}
	var pools v1beta1.NstanceMachinePoolList
	if err := from.List(ctx, &pools, of...); err != nil {
		return false, fmt.Errorf("list pools: %w", err)
	}
	var machines v1beta1.NstanceMachineList
	if err := from.List(ctx, &machines, of...); err != nil {
		return false, fmt.Errorf("list machines: %w", err)
	}
	return len(pools.Items)+len(machines.Items) > 0, nil
}
