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

// phase is a phase as people write it, from the name of the enum.
type phase string

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *phase) UnmarshalText(name []byte) error {
	*p = phase(strings.ToLower(strings.TrimPrefix(string(name), "INSTANCE_PHASE_")))
	return nil
}

// instance is an instance in nstance-admin's output.
type instance struct {
	ID             string `json:"id"`
	Shard          string `json:"shard"`
	Group          string `json:"group"`
	Phase          phase  `json:"phase"`
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

// instances returns the instances of a group that are not leaving, of one shard or of all.
func (f *fixture) instances(group, shard string) (found []instance) {
	f.Helper()
	for _, i := range f.all(shard) {
		if i.Group == group && (i.Phase == "pending" || i.Phase == "running") {
			found = append(found, i)
		}
	}
	return found
}

// all returns the instances of a shard, or of all shards, including deleted ones.
func (f *fixture) all(shard string) (all []instance) {
	f.Helper()
	where := "--all-shards"
	if shard != "" {
		where = "--shard=" + shard
	}
	if err := json.Unmarshal(f.admin("instance", "list", "--deleted", where, "--output", "json"), &all); err != nil {
		f.Fatal(err)
	}
	return all
}

// sizes returns a group's sizes on the two shards.
func (f *fixture) sizes(group string) (sizes [2]int) {
	f.Helper()
	var all []struct {
		Shard string `json:"shard"`
		Key   string `json:"key"`
		Size  int    `json:"size"`
	}
	if err := json.Unmarshal(f.admin("group", "list", "--all-shards", "--output", "json"), &all); err != nil {
		f.Fatal(err)
	}
	for _, g := range all {
		if g.Key == group {
			sizes[slices.Index([]string{dev1, dev2}, g.Shard)] = g.Size
		}
	}
	return sizes
}

func (f *fixture) get(ctx context.Context, name string, o client.Object) error {
	return f.api.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, o)
}

// running waits until Cluster API's own controller reports this many nodes of a MachinePool.
func (f *fixture) running(name string, replicas int) *clusterv1.MachinePool {
	f.Helper()
	var pool clusterv1.MachinePool
	f.eventually(fmt.Sprintf("MachinePool %s is Running with %d nodes", name, replicas), func(ctx context.Context) error {
		if err := f.get(ctx, name, &pool); err != nil {
			return err
		}
		if pool.Status.Phase != string(clusterv1.MachinePoolPhaseRunning) || len(pool.Status.NodeRefs) != replicas {
			return fmt.Errorf("phase %s, %d nodes", pool.Status.Phase, len(pool.Status.NodeRefs))
		}
		return nil
	})
	return &pool
}

// scale sets a MachinePool's replicas as kubectl scale does.
func (f *fixture) scale(name string, replicas int) {
	f.Helper()
	pool := &clusterv1.MachinePool{}
	pool.Namespace, pool.Name = f.namespace, name
	patch := client.RawPatch(clusterMerge, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := f.api.SubResource("scale").Patch(f.Context(), pool, patch); err != nil {
		f.Fatal(err)
	}
}

const clusterMerge = "application/merge-patch+json"

// nodes returns the names of the Nodes of a shard's group that are not being deleted.
func (f *fixture) nodes(ctx context.Context, group, shard string) (names []string, err error) {
	labels := client.MatchingLabels{v1beta1.LabelGroup: group}
	if shard != "" {
		labels[v1beta1.LabelShard] = shard
	}
	var list corev1.NodeList
	if err := f.api.List(ctx, &list, labels); err != nil {
		return nil, err
	}
	for _, n := range list.Items {
		if n.DeletionTimestamp.IsZero() {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

// machines returns the Machines of a pool.
func (f *fixture) machines(ctx context.Context, pool string) ([]clusterv1.Machine, error) {
	var list clusterv1.MachineList
	err := f.api.List(ctx, &list, client.InNamespace(f.namespace), client.MatchingLabels{clusterv1.MachinePoolNameLabel: pool})
	return list.Items, err
}

// available waits until Cluster API reports the Cluster as available.
func (f *fixture) available() {
	f.Helper()
	f.eventually("the Cluster is Available", func(ctx context.Context) error {
		var c clusterv1.Cluster
		if err := f.get(ctx, clusterName, &c); err != nil {
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
