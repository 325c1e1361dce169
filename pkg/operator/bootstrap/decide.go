package bootstrap

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// machinePoolKind is the kind of a pool's infrastructure.
const machinePoolKind = "NstanceMachinePool"

// annotation marks a MachinePool made by an import.
const annotation = "nstance.dev/imported"

// part is a group on one of its shards.
type part struct {
	shard string
	group *nstancev1.GroupStatus
}

// importView is the input of the decision.
type importView struct {
	// groups are the parts of each group, in the order of the shards, without groups that are
	// only being emptied.
	groups map[string][]part
	infra  []v1beta1.NstanceMachinePool
	pools  []clusterv1.MachinePool
	shards []v1beta1.NstanceShardGroup
	// seen are the groups that have had a pool since the operator started.
	seen map[string]bool
}

// leaves reports whether a group is only being emptied: it was deleted, or nothing defines it
// any more.
func leaves(g *nstancev1.GroupStatus) bool {
	return g.GetEtag() == "" || shards.Condition(g, "Removed") != nil
}

// imported is a group that has no pool and should have one.
type imported struct {
	parts []part
	// half: only its MachinePool exists.
	half bool
	// taken is why its name can't be used; empty if it can.
	taken string
}

// group is the group's key.
func (i imported) group() string { return i.parts[0].group.GetKey() }

// missing returns the groups without a pool, sorted.
func missing(v importView) (all []imported) {
	has := map[string]bool{}
	maps.Copy(has, v.seen)
	infra := map[string]bool{}
	for i := range v.infra {
		has[string(v.infra[i].Spec.Group)] = true
		infra[v.infra[i].Name] = true
	}
	// A pool was deleted and its group is about to go, too.
	for i := range v.shards {
		has[string(v.shards[i].Spec.Group)] = true
	}
	pools := map[string]*clusterv1.MachinePool{}
	for i := range v.pools {
		pools[v.pools[i].Name] = &v.pools[i]
	}
	for _, key := range slices.Sorted(maps.Keys(v.groups)) {
		pool := pools[key]
		if has[key] || len(v.groups[key]) == 0 {
			continue
		}
		one := imported{parts: v.groups[key], half: pool != nil}
		switch {
		case pool != nil && !names(pool, key):
			one.taken = fmt.Sprintf("the MachinePool %s already exists with another infrastructure: rename one of the two", key)
		case pool != nil && (!pool.DeletionTimestamp.IsZero() || pool.Annotations[annotation] == ""):
			continue // it is being deleted, or its creator will complete it
		case infra[key]:
			one.taken = fmt.Sprintf("the NstanceMachinePool %s already exists for another group: rename one of the two", key)
		}
		all = append(all, one)
	}
	return all
}

// names reports whether a MachinePool names one of our pools as its infrastructure.
func names(pool *clusterv1.MachinePool, key string) bool {
	ref := pool.Spec.Template.Spec.InfrastructureRef
	return ref.APIGroup == v1beta1.Group && ref.Kind == machinePoolKind && ref.Name == key
}

// forget returns the groups of seen that no longer exist anywhere.
func forget(v importView) (gone []string) {
	for key := range v.seen {
		has := func(p v1beta1.NstanceMachinePool) bool { return string(p.Spec.Group) == key }
		if len(v.groups[key]) == 0 && !slices.ContainsFunc(v.infra, has) {
			gone = append(gone, key)
		}
	}
	return gone
}

// replicas is the group's size, summed over its shards.
func (i imported) replicas() int32 {
	var sum int64
	for _, p := range i.parts {
		sum += int64(p.group.GetSize())
	}
	return int32(min(sum, math.MaxInt32))
}

func (i imported) shards() (names []v1beta1.Name) {
	for _, p := range i.parts {
		names = append(names, v1beta1.Name(p.shard))
	}
	return names
}

// static reports whether a shard's own config names the group.
func (i imported) static() bool {
	return slices.ContainsFunc(i.parts, func(p part) bool { return p.group.GetIsStatic() })
}

// infrastructure returns the group's NstanceMachinePool. Fields in which the shards differ
// stay unset. So do fields that a shard's own config sets: they can be changed there, and a
// copy would override the change.
func (i imported) infrastructure(namespace, cluster string) (*v1beta1.NstanceMachinePool, error) {
	o := &v1beta1.NstanceMachinePool{ObjectMeta: i.meta(namespace, cluster)}
	o.Spec.Group, o.Spec.Shards = v1beta1.Name(i.group()), i.shards()
	if i.static() {
		return o, nil
	}
	o.Spec.Template = agreed(i.parts, (*nstancev1.GroupStatus).GetTemplate)
	o.Spec.SubnetPool = v1beta1.Name(agreed(i.parts, (*nstancev1.GroupStatus).GetSubnetPool))
	o.Spec.InstanceType = agreed(i.parts, (*nstancev1.GroupStatus).GetInstanceType)
	var err error
	o.Spec.Vars, err = i.vars()
	return o, err
}

// machinePool returns the MachinePool, which sets the group's size.
func (i imported) machinePool(namespace, cluster string) *clusterv1.MachinePool {
	o := &clusterv1.MachinePool{ObjectMeta: i.meta(namespace, cluster)}
	o.Annotations = map[string]string{annotation: "true"}
	o.Spec.ClusterName = cluster
	o.Spec.Replicas = new(i.replicas())
	o.Spec.Template.Spec = clusterv1.MachineSpec{
		ClusterName: cluster,
		// Machines bring their own bootstrap data; without a Secret name Cluster API would
		// wait for one.
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: new("")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: machinePoolKind, Name: i.group()},
	}
	return o
}

func (i imported) meta(namespace, cluster string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: i.group(),
		Labels: map[string]string{clusterv1.ClusterNameLabel: cluster, v1beta1.LabelGroup: i.group()},
	}
}

// agreed returns the value on which all shards agree; empty if they differ.
func agreed(parts []part, say func(*nstancev1.GroupStatus) string) string {
	for _, p := range parts[1:] {
		if say(p.group) != say(parts[0].group) {
			return ""
		}
	}
	return say(parts[0].group)
}

func (i imported) vars() (v1beta1.Vars, error) {
	first := i.parts[0].group.GetVars()
	for _, p := range i.parts[1:] {
		if !proto.Equal(filled(first), filled(p.group.GetVars())) {
			return nil, nil
		}
	}
	var vars v1beta1.Vars
	for name, value := range first.GetFields() {
		raw, err := json.Marshal(value.AsInterface())
		if err != nil {
			return nil, fmt.Errorf("group %s: vars.%s: %w", i.group(), name, err)
		}
		if vars == nil {
			vars = v1beta1.Vars{}
		}
		vars[name] = apiextensionsv1.JSON{Raw: raw}
	}
	return vars, nil
}

// filled returns nil for empty vars.
func filled(s *structpb.Struct) *structpb.Struct {
	if s == nil {
		return &structpb.Struct{}
	}
	return s
}
