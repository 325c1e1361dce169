//go:build integration

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// instance is what nstance-admin says of one.
type instance struct {
	ID             string `json:"id"`
	Shard          string `json:"shard"`
	Group          string `json:"group"`
	Phase          string `json:"phase"`
	OnDemand       bool   `json:"on_demand"`
	NodeProviderID string `json:"node_provider_id"`
	Reason         string `json:"reason"`
	LastError      string `json:"last_error"`
	CreatedAt      string `json:"created_at"`
	Drain          struct {
		Reason   string    `json:"reason"`
		DeleteAt time.Time `json:"delete_at"`
	} `json:"drain"`
}

// instances are those of a group that are not leaving, of one shard or of all.
func (w *world) instances(group, shard string) (found []instance) {
	w.Helper()
	for _, i := range w.all(shard) {
		if i.Group == group && (i.Phase == "pending" || i.Phase == "running") {
			found = append(found, i)
		}
	}
	return found
}

// all are the instances of a shard, or of all shards, with those that were deleted.
func (w *world) all(shard string) (all []instance) {
	w.Helper()
	where := "--all-shards"
	if shard != "" {
		where = "--shard=" + shard
	}
	if err := json.Unmarshal(w.admin("instance", "list", "--deleted", where, "--output", "json"), &all); err != nil {
		w.Fatal(err)
	}
	return all
}

// sizes are a group's wanted ones on the two shards.
func (w *world) sizes(group string) (sizes [2]int) {
	w.Helper()
	var all []struct {
		Shard string `json:"shard"`
		Key   string `json:"key"`
		Size  int    `json:"size"`
	}
	if err := json.Unmarshal(w.admin("group", "list", "--all-shards", "--output", "json"), &all); err != nil {
		w.Fatal(err)
	}
	for _, g := range all {
		if g.Key == group {
			sizes[slices.Index([]string{dev1, dev2}, g.Shard)] = g.Size
		}
	}
	return sizes
}

func (w *world) get(ctx context.Context, name string, o client.Object) error {
	return w.api.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, o)
}

// running waits until a MachinePool has that many nodes, as Cluster API's own
// controller says.
func (w *world) running(name string, replicas int) *clusterv1.MachinePool {
	w.Helper()
	var pool clusterv1.MachinePool
	w.eventually(fmt.Sprintf("MachinePool %s is Running with %d nodes", name, replicas), func(ctx context.Context) error {
		if err := w.get(ctx, name, &pool); err != nil {
			return err
		}
		if pool.Status.Phase != string(clusterv1.MachinePoolPhaseRunning) || len(pool.Status.NodeRefs) != replicas {
			return fmt.Errorf("phase %s, %d nodes", pool.Status.Phase, len(pool.Status.NodeRefs))
		}
		return nil
	})
	return &pool
}

// scale sets a MachinePool's replicas the way kubectl scale does.
func (w *world) scale(name string, replicas int) {
	w.Helper()
	pool := &clusterv1.MachinePool{}
	pool.Namespace, pool.Name = w.namespace, name
	patch := client.RawPatch(clusterMerge, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := w.api.SubResource("scale").Patch(w.Context(), pool, patch); err != nil {
		w.Fatal(err)
	}
}

const clusterMerge = "application/merge-patch+json"

// nodes are the names of the Nodes of a shard's group that are not being deleted.
func (w *world) nodes(ctx context.Context, group, shard string) (names []string, err error) {
	labels := client.MatchingLabels{v1beta1.LabelGroup: group}
	if shard != "" {
		labels[v1beta1.LabelShard] = shard
	}
	var list corev1.NodeList
	if err := w.api.List(ctx, &list, labels); err != nil {
		return nil, err
	}
	for _, n := range list.Items {
		if n.DeletionTimestamp.IsZero() {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

// machines are the Machines of a pool.
func (w *world) machines(ctx context.Context, pool string) ([]clusterv1.Machine, error) {
	var list clusterv1.MachineList
	err := w.api.List(ctx, &list, client.InNamespace(w.namespace), client.MatchingLabels{clusterv1.MachinePoolNameLabel: pool})
	return list.Items, err
}

// available waits until Cluster API says that the Cluster is.
func (w *world) available() {
	w.Helper()
	w.eventually("the Cluster is Available", func(ctx context.Context) error {
		var c clusterv1.Cluster
		if err := w.get(ctx, clusterName, &c); err != nil {
			return err
		}
		if meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ClusterAvailableCondition) {
			return nil
		}
		var why []string
		for _, condition := range c.Status.Conditions {
			if condition.Status != "True" {
				why = append(why, condition.Type+": "+condition.Message)
			}
		}
		return fmt.Errorf("%s", strings.Join(why, "; "))
	})
}
