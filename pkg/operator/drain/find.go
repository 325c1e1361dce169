package drain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// byInstance is this package's own index of NstanceMachines: by shard and instance.
const byInstance = "drain.nstance.dev/instance"

// machines are the objects that stand for an instance.
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
	return nil
}

func (r *Reconciler) machinesOf(ctx context.Context, q reconcile.Request) (machines, error) {
	var all v1beta1.NstanceMachineList
	err := r.Client.List(ctx, &all, client.InNamespace(r.Namespace), client.MatchingFields{byInstance: q.String()})
	if err != nil || len(all.Items) == 0 {
		return machines{}, err
	}
	m := machines{infra: &all.Items[0]}
	m.core, err = capi.OwnerMachine(ctx, r.Client, m.infra)
	return m, err
}

// nodeOf returns an instance's Node; nil without an error: there is none. The cache
// alone can't be asked for that: it may have lost its connection, or may not have seen
// yet that a Node got its provider id.
func (r *Reconciler) nodeOf(ctx context.Context, i *nstancev1.InstanceStatus) (*corev1.Node, error) {
	id := i.GetNodeProviderId()
	if id == "" {
		return nil, nil //nolint:nilnil // documented
	}
	n, err := r.Workload.NodeByProviderID(ctx, id)
	if err != nil || n != nil {
		return n, err
	}
	if err := r.Workload.Err(); err != nil {
		return nil, err
	}
	return nodeWith(ctx, r.Workload.Reader(), id, i.GetHostname())
}

// nodesAtOnce is how many Nodes one page of a list has.
const nodesAtOnce = 500

// nodeWith reads past the cache: the Node of the machine's hostname, or else, since a Node
// may be called otherwise, whichever has its provider id. nil without an error: none.
func nodeWith(ctx context.Context, api client.Reader, id, hostname string) (*corev1.Node, error) {
	if hostname != "" {
		var node corev1.Node
		err := api.Get(ctx, client.ObjectKey{Name: hostname}, &node)
		switch {
		case err == nil && (node.Spec.ProviderID == "" || node.Spec.ProviderID == id):
			return &node, nil
		case client.IgnoreNotFound(err) != nil:
			return nil, err
		}
	}
	for from := ""; ; {
		var page corev1.NodeList
		if err := api.List(ctx, &page, client.Limit(nodesAtOnce), client.Continue(from)); err != nil {
			return nil, err
		}
		for i := range page.Items {
			if page.Items[i].Spec.ProviderID == id {
				return &page.Items[i], nil
			}
		}
		if from = page.Continue; from == "" {
			return nil, nil //nolint:nilnil // documented
		}
	}
}

// rulesOf returns Cluster API's drain rules for the pods of a Machine. An instance for
// which there is no Machine has no labels.
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
