package shardgroup

import (
	"errors"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// known is what a decision is made on, beside what is wanted.
type known struct {
	// group is what the shard has; nil: nothing.
	group *nstancev1.GroupStatus
	// taken: the shard took this generation of the spec before, so that whom it
	// removes is settled.
	taken bool
	// vars is the digest of the vars that the shard took last; empty: it never took any.
	vars string
	// surge: the shard may have a surge that was pushed to it before.
	surge bool
	// gone reports whether an instance has certainly left.
	gone func(id string) bool
}

// decide returns what is to be asked of a shard for a group to become as it is wanted,
// on condition that it is still what was known of it; nil: nothing. What the spec leaves
// unset is left to the shard.
func decide(want *v1beta1.NstanceShardGroupSpec, have known) (*nstancev1.UpsertGroupRequest, error) {
	if want.Size == nil {
		return nil, errors.New("spec.size: is not set: want a whole number from 0")
	}
	vars, pushed, err := varsToPush(want.Vars, have)
	if err != nil {
		return nil, err
	}
	g := have.group
	anew := !exists(g)
	r := &nstancev1.UpsertGroupRequest{Key: string(want.Group), IfEtag: new(g.GetEtag()), Vars: vars}
	text := func(field **string, wanted, shown string) {
		if wanted != "" && (anew || wanted != shown) {
			*field = new(wanted)
		}
	}
	text(&r.Template, want.Template, g.GetTemplate())
	text(&r.InstanceType, want.InstanceType, g.GetInstanceType())
	text(&r.SubnetPool, string(want.SubnetPool), g.GetSubnetPool())
	r.MaxSurge = surgeToPush(want.Rotation.MaxSurge, have)
	size := *want.Size
	sized := anew || size != g.GetSize()
	if !anew && (sized || !have.taken) {
		r.Remove = staying(want.Remove, have.gone)
	}
	if sized || len(r.Remove) > 0 {
		r.Size = new(size)
	}
	if !pushed && !sets(r) {
		return nil, nil //nolint:nilnil // documented
	}
	return r, nil
}

// sets reports whether a request changes anything but vars.
func sets(r *nstancev1.UpsertGroupRequest) bool {
	return r.Size != nil || r.Template != nil || r.InstanceType != nil || r.SubnetPool != nil || r.MaxSurge != nil
}

// exists reports whether a shard has a group that can be changed. One that is being
// deleted has to be made anew.
func exists(g *nstancev1.GroupStatus) bool {
	return g != nil && g.GetEtag() != "" && condition(g, "Removed") == nil
}

// condition returns a group's condition that is true; nil: it is not.
func condition(g *nstancev1.GroupStatus, kind string) *nstancev1.Condition {
	for _, c := range g.GetConditions() {
		if c.GetType() == kind && c.GetStatus() {
			return c
		}
	}
	return nil
}

// staying are those of the instances that may still be there.
func staying(ids []v1beta1.InstanceID, gone func(string) bool) (out []string) {
	for _, id := range ids {
		if !gone(string(id)) {
			out = append(out, string(id))
		}
	}
	return out
}

// varsToPush returns the vars that the shard has to be told, and whether it has to. A
// group shows its vars merged over those of its template, so what is missing there can be
// seen, and what should not be there any more can't: that follows from what was pushed
// before. Vars that were pushed once are taken back when they are wanted no more.
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
