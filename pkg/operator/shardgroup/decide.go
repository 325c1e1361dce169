package shardgroup

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// known is the observed state on which decide is based.
type known struct {
	// group is the shard's group; nil if there is none.
	group *nstancev1.GroupStatus
	// taken: the shard accepted this generation of the spec before, so the instances to remove
	// are settled.
	taken bool
	// vars is the digest of the last vars that the shard accepted; empty if it never did.
	vars string
	// surge: the shard may have a surge that was pushed before.
	surge bool
	// policy: the shard may have an on_demand that was pushed before.
	policy bool
	// manager is what the shard knows this object by, as the manager of the group.
	manager string
	// claimed: the shard has accepted the manager for the group as it is. If it does not show it, it may be
	// of a version without managers.
	claimed bool
	// gone reports whether an instance is certainly gone.
	gone func(id string) bool
	// instances are the group's, as far as is known.
	instances []*nstancev1.InstanceStatus
}

// decide returns the request that changes a shard's group to the spec, conditional on the
// group's known etag, and makes the object its manager; nil if nothing differs. Fields that the spec
// leaves unset are left to the shard.
func decide(want *v1beta1.NstanceShardGroupSpec, have known) (*nstancev1.UpsertGroupRequest, error) {
	if want.Size == nil {
		return nil, errors.New("spec.size: not set: want a whole number from 0")
	}
	vars, pushed, err := varsToPush(want.Vars, have)
	if err != nil {
		return nil, err
	}
	g := have.group
	anew := !exists(g)
	r := &nstancev1.UpsertGroupRequest{Key: string(want.Group), IfEtag: new(g.GetEtag()), Vars: vars, Manager: have.manager}
	text := func(field **string, wanted, shown string) {
		if wanted != "" && (anew || wanted != shown) {
			*field = new(wanted)
		}
	}
	text(&r.Template, want.Template, g.GetTemplate())
	text(&r.InstanceType, want.InstanceType, g.GetInstanceType())
	text(&r.SubnetPool, string(want.SubnetPool), g.GetSubnetPool())
	r.MaxSurge = surgeToPush(want.Rotation.MaxSurge, have)
	r.OnDemand = onDemandToPush(want.OnDemand, have)
	size := *want.Size
	sized := anew || size != g.GetSize()
	if !anew && (sized || !have.taken) {
		r.Remove = have.leaving(want)
	}
	if have.claims() || sized || len(r.Remove) > 0 {
		r.Size = new(size)
	}
	if !pushed && !sets(r) {
		return nil, nil //nolint:nilnil // documented
	}
	return r, nil
}

// sets reports whether a request changes anything besides vars.
func sets(r *nstancev1.UpsertGroupRequest) bool {
	return r.Size != nil || r.Template != nil || r.InstanceType != nil || r.SubnetPool != nil || r.MaxSurge != nil ||
		r.OnDemand != nil
}

// exists reports whether the shard has a group that can be changed. A group that is being
// deleted has to be created anew.
func exists(g *nstancev1.GroupStatus) bool {
	return g != nil && g.GetEtag() != "" && shards.Condition(g, "Removed") == nil
}

// claims reports whether the object is to become the manager of an existing group: not while the group is held,
// since its record is missing. That would end the hold, which is an administrator's decision.
func (k known) claims() bool {
	return k.group.GetManager() != k.manager && !k.claimed && shards.Condition(k.group, "GroupRecordMissing") == nil
}

// leaving returns the instances to remove. One that went before a smaller size was taken has been
// replaced meanwhile: the youngest goes in its place, not one that has worked for longer.
func (k known) leaving(want *v1beta1.NstanceShardGroupSpec) []string {
	ids := staying(want.Remove, k.gone)
	by := int(k.group.GetSize() - *want.Size)
	return append(ids, k.youngest(min(by, len(want.Remove))-len(ids), ids)...)
}

// youngest returns up to n of the instances that keep the group at size, without the given ones;
// none if fewer than the group's size are known.
func (k known) youngest(n int, without []string) (ids []string) {
	var all []*nstancev1.InstanceStatus
	for _, i := range k.instances {
		if fills(i) {
			all = append(all, i)
		}
	}
	if len(all) < int(k.group.GetSize()) {
		return nil // the replacement is not known yet
	}
	slices.SortStableFunc(all, func(a, b *nstancev1.InstanceStatus) int {
		return b.GetCreatedAt().AsTime().Compare(a.GetCreatedAt().AsTime())
	})
	for _, i := range all {
		if len(ids) < n && !slices.Contains(without, i.GetId()) {
			ids = append(ids, i.GetId())
		}
	}
	return ids
}

// fills reports whether an instance counts towards its group's size.
func fills(i *nstancev1.InstanceStatus) bool {
	const pending, running = nstancev1.InstancePhase_INSTANCE_PHASE_PENDING, nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
	return !i.GetOnDemand() && (i.GetPhase() == pending || i.GetPhase() == running)
}

// staying returns the instances that may still exist.
func staying(ids []v1beta1.InstanceID, gone func(string) bool) (out []string) {
	for _, id := range ids {
		if !gone(string(id)) {
			out = append(out, string(id))
		}
	}
	return out
}

// varsToPush returns the vars to send to the shard, and whether to send them. A group shows
// its vars merged over its template's, so missing ones can be seen, but surplus ones can't:
// those follow from what was pushed before. Vars that were pushed once are withdrawn when they
// are no longer wanted.
func varsToPush(want v1beta1.Vars, have known) (*structpb.Struct, bool, error) {
	if len(want) == 0 && (have.vars == "" || have.vars == digest(nil)) {
		return nil, false, nil
	}
	vars, err := toStruct(want)
	if err != nil {
		return nil, false, err
	}
	if exists(have.group) && have.vars == digest(want) && holds(have.group.GetVars().AsMap(), vars.AsMap()) {
		return nil, false, nil
	}
	return vars, true, nil
}
