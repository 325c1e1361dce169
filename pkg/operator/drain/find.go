package drain

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
)

// This package's indexes of NstanceMachines.
const (
	byInstance   = "drain.nstance.dev/instance" // the shard, and the instance
	byProviderID = "drain.nstance.dev/providerID"
)

// machines are the objects of an instance.
type machines struct {
	infra *v1beta1.NstanceMachine // nil: none
	core  *clusterv1.Machine      // nil: none
}

func indexMachines(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1beta1.NstanceMachine{}, byInstance, func(o client.Object) []string {
		if m, ok := o.(*v1beta1.NstanceMachine); ok && m.Spec.InstanceID != "" {
			return []string{string(m.Spec.Shard) + "/" + string(m.Spec.InstanceID)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index NstanceMachines: %w", err)
	}
	err = mgr.GetFieldIndexer().IndexField(context.Background(), &v1beta1.NstanceMachine{}, byProviderID, func(o client.Object) []string {
		if m, ok := o.(*v1beta1.NstanceMachine); ok && m.Spec.ProviderID != "" {
			return []string{m.Spec.ProviderID}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index NstanceMachines by provider ID: %w", err)
	}
	return nil
}

func (r *Reconciler) machinesOf(ctx context.Context, q reconcile.Request) (machines, error) {
	var all v1beta1.NstanceMachineList
	err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace), client.MatchingFields{byInstance: q.String()})
	if err != nil || len(all.Items) == 0 {
		return machines{}, err
	}
	m := machines{infra: &all.Items[0]}
	m.core, err = capi.MachineFor(ctx, r.Client, m.infra, v1beta1.MachineKind())
	return m, err
}

// rulesOf returns Cluster API's drain rules for the pods of a Machine. An instance without a
// Machine has no labels.
func (r *Reconciler) rulesOf(ctx context.Context, m *clusterv1.Machine) ([]podRule, error) {
	var all clusterv1.MachineDrainRuleList
	if err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace)); err != nil || len(all.Items) == 0 {
		return nil, err
	}
	var machine, cluster labels.Set
	if m != nil {
		machine = m.Labels
		c, err := capi.Cluster(ctx, r.Client, m)
		if err != nil {
			return nil, err
		}
		if c != nil {
			cluster = c.Labels
		}
	}
	return rulesFor(all.Items, machine, cluster)
}
