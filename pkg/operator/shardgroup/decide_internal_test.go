package shardgroup

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	idA = "knd01hf7yat00e00r0000000000g0"
	idB = "knd01hf7yat00e00r0000000000g2"
)

func vars(pairs ...string) v1beta1.Vars {
	out := v1beta1.Vars{}
	for n := 0; n < len(pairs); n += 2 {
		out[pairs[n]] = apiextensionsv1.JSON{Raw: []byte(pairs[n+1])}
	}
	return out
}

func structOf(tb testing.TB, v map[string]any) *structpb.Struct {
	tb.Helper()
	s, err := structpb.NewStruct(v)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// held returns a group whose record is missing.
func held(g *nstancev1.GroupStatus) *nstancev1.GroupStatus {
	g.Conditions = append(g.Conditions, &nstancev1.Condition{Type: "GroupRecordMissing", Status: "True"})
	return g
}

func removed(g *nstancev1.GroupStatus) *nstancev1.GroupStatus {
	g.Conditions = append(g.Conditions, &nstancev1.Condition{Type: "Removed", Status: "True", Reason: "GroupDeleted"})
	return g
}

// TestDecide: only fields that are set and differ are sent, conditional on the etag that was
// read.
func TestDecide(t *testing.T) {
	group := func() *nstancev1.GroupStatus {
		return &nstancev1.GroupStatus{
			Key: "web", Etag: "e1", Size: 3, Template: "knd", InstanceType: "small", SubnetPool: "workers", MaxSurge: "1",
			Vars: structOf(t, map[string]any{"a": 1, "b": map[string]any{"c": 2, "d": 3}}),
		}
	}
	pods := &v1beta1.OnDemand{
		Namespaces: []string{"ci"}, NamespaceLabels: map[string]string{"a": "b"}, InstanceTypes: []string{"large"}, Max: 3, MaxPerNamespace: 2,
	}
	forPods := &nstancev1.OnDemand{
		Namespaces: []string{"ci"}, NamespaceLabels: map[string]string{"a": "b"}, InstanceTypes: []string{"large"}, Max: 3, MaxPerNamespace: 2,
	}
	allowing := func(o *nstancev1.OnDemand) *nstancev1.GroupStatus {
		g := group()
		g.OnDemand = o
		return g
	}
	static := func(g *nstancev1.GroupStatus) *nstancev1.GroupStatus {
		g.IsStatic = true
		return g
	}
	surge := func(s intstr.IntOrString) v1beta1.Rotation { return v1beta1.Rotation{MaxSurge: &s} }
	all := v1beta1.NstanceShardGroupSpec{
		Size: new(int32(3)), Template: "knd", InstanceType: "small", SubnetPool: "workers", Rotation: surge(intstr.FromString("1")),
	}
	managed := func(by string) *nstancev1.GroupStatus {
		g := group()
		g.Manager = by
		return g
	}
	created := &nstancev1.UpsertGroupRequest{
		IfEtag: new(""), Size: new(int32(3)), Template: new("knd"), InstanceType: new("small"), SubnetPool: new("workers"), MaxSurge: new("1"),
	}
	with := func(edit func(*nstancev1.UpsertGroupRequest)) *nstancev1.UpsertGroupRequest {
		r := &nstancev1.UpsertGroupRequest{IfEtag: new("e1")}
		edit(r)
		return r
	}
	for name, c := range map[string]struct {
		spec v1beta1.NstanceShardGroupSpec
		have known
		want *nstancev1.UpsertGroupRequest
	}{
		"no difference":             {all, known{group: group()}, nil},
		"unset fields are not sent": {v1beta1.NstanceShardGroupSpec{Size: new(int32(3))}, known{group: group()}, nil},
		"size": {v1beta1.NstanceShardGroupSpec{Size: new(int32(0))}, known{group: group(), taken: true},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Size = new(int32(0)) })},
		"template and pool": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), Template: "big", SubnetPool: "others"}, known{group: group()},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Template, r.SubnetPool = new("big"), new("others") }),
		},
		"max surge as a percentage": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), Rotation: surge(intstr.FromString("5%"))}, known{group: group()},
			with(func(r *nstancev1.UpsertGroupRequest) { r.MaxSurge = new("5%") }),
		},
		"max surge as a number": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), Rotation: surge(intstr.FromInt32(1))}, known{group: group()}, nil,
		},
		"max surge removed": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3))}, known{group: group(), surge: true},
			with(func(r *nstancev1.UpsertGroupRequest) { r.MaxSurge = new("") }),
		},
		"on-demand policy": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), OnDemand: pods}, known{group: group()},
			with(func(r *nstancev1.UpsertGroupRequest) { r.OnDemand = forPods }),
		},
		"on-demand policy, unchanged": {v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), OnDemand: pods}, known{group: allowing(forPods)}, nil},
		"on-demand policy removed": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3))}, known{group: allowing(forPods), policy: true},
			with(func(r *nstancev1.UpsertGroupRequest) { r.OnDemand = &nstancev1.OnDemand{} }),
		},
		"on-demand policy set by another client": {v1beta1.NstanceShardGroupSpec{Size: new(int32(3))}, known{group: allowing(forPods)}, nil},
		"static group: no policy is sent": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(4)), OnDemand: pods}, known{group: static(group()), taken: true},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Size = new(int32(4)) }),
		},
		"static group: no policy is removed": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3))}, known{group: static(group()), policy: true}, nil,
		},
		"managed already": {all, known{group: managed("me"), manager: "me"}, nil},
		"managed by nothing": {all, known{group: group(), manager: "me"}, with(func(r *nstancev1.UpsertGroupRequest) {
			r.Size, r.Manager = new(int32(3)), "me"
		})},
		"managed by something else": {all, known{group: managed("another"), manager: "me"}, with(func(r *nstancev1.UpsertGroupRequest) {
			r.Size, r.Manager = new(int32(3)), "me"
		})},
		"managed by nothing, as far as the shard shows": {all, known{group: group(), manager: "me", claimed: true}, nil},
		"managed by nothing, and held":                  {all, known{group: held(group()), manager: "me"}, nil},
		"managed by nothing, with instances that were removed": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), Remove: []v1beta1.InstanceID{idB}}, known{group: group(), manager: "me", taken: true},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Size, r.Manager = new(int32(3)), "me" }),
		},
		"no group yet":           {all, known{}, created},
		"group without a record": {all, known{group: &nstancev1.GroupStatus{Key: "web", Template: "knd", MaxSurge: "1"}}, created},
		"group being deleted": {all, known{group: removed(group())}, with(func(r *nstancev1.UpsertGroupRequest) {
			proto.Merge(r, created)
			r.IfEtag = new("e1")
		})},
		"remove": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), Remove: []v1beta1.InstanceID{idA, idB}},
			known{group: group(), gone: func(id string) bool { return id == idA }},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Size, r.Remove = new(int32(3)), []string{idB} }),
		},
		"remove, already requested": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), Remove: []v1beta1.InstanceID{idB}}, known{group: group(), taken: true}, nil,
		},
		"remove, already gone": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), Remove: []v1beta1.InstanceID{idA}},
			known{group: group(), gone: func(string) bool { return true }}, nil,
		},
		"remove with a new size": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(2)), Remove: []v1beta1.InstanceID{idB}}, known{group: group(), taken: true},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Size, r.Remove = new(int32(2)), []string{idB} }),
		},
		"remove with a new size, replaced already": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(2)), Remove: []v1beta1.InstanceID{idA}},
			known{group: group(), taken: true, gone: func(id string) bool { return id == idA }, instances: aged("old", idB, "young")},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Size, r.Remove = new(int32(2)), []string{"young"} }),
		},
		"remove with a new size, one of two replaced already": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(1)), Remove: []v1beta1.InstanceID{idA, idB}},
			known{group: group(), taken: true, gone: func(id string) bool { return id == idA }, instances: aged("old", "young", idB)},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Size, r.Remove = new(int32(1)), []string{idB, "young"} }),
		},
		"remove with a new size, the replacement not known": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(2)), Remove: []v1beta1.InstanceID{idA}},
			known{group: group(), taken: true, gone: func(id string) bool { return id == idA }, instances: aged("old", "other")},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Size = new(int32(2)) }),
		},
		"vars changed": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), Vars: vars("a", "2")}, known{group: group(), vars: digest(vars("a", "1"))},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Vars = structOf(t, map[string]any{"a": 2}) }),
		},
		"vars unchanged": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), Vars: vars("b", `{"d": 3.0}`)},
			known{group: group(), vars: digest(vars("b", `{"d":3}`))}, nil,
		},
		"vars changed on the shard": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), Vars: vars("b", `{"d": 4}`)},
			known{group: group(), vars: digest(vars("b", `{"d":4}`))},
			with(func(r *nstancev1.UpsertGroupRequest) {
				r.Vars = structOf(t, map[string]any{"b": map[string]any{"d": 4}})
			}),
		},
		"a var removed": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3)), Vars: vars("a", "1")},
			known{group: group(), vars: digest(vars("a", "1", "b", `{"c": 2}`))},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Vars = structOf(t, map[string]any{"a": 1}) }),
		},
		"all vars removed": {
			v1beta1.NstanceShardGroupSpec{Size: new(int32(3))}, known{group: group(), vars: digest(vars("a", "1"))},
			with(func(r *nstancev1.UpsertGroupRequest) { r.Vars = &structpb.Struct{} }),
		},
		"no vars, unchanged": {v1beta1.NstanceShardGroupSpec{Size: new(int32(3))}, known{group: group(), vars: digest(nil)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Group = "web"
			if c.want != nil {
				c.want.Key = "web"
			}
			if c.have.gone == nil {
				c.have.gone = func(string) bool { return false }
			}
			got, err := decide(&c.spec, c.have)
			if err != nil || !proto.Equal(got, c.want) {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
		})
	}
}

// aged are running instances, the oldest first.
func aged(ids ...string) (all []*nstancev1.InstanceStatus) {
	for n, id := range ids {
		all = append(all, &nstancev1.InstanceStatus{
			Id: id, Phase: nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING, CreatedAt: &timestamppb.Timestamp{Seconds: int64(n)},
		})
	}
	return all
}

// TestDecideRejectsInvalidSpecs, which can't be sent.
func TestDecideRejectsInvalidSpecs(t *testing.T) {
	for _, spec := range []v1beta1.NstanceShardGroupSpec{
		{Group: "web"},
		{Group: "web", Size: new(int32(1)), Vars: vars("a", `{`)},
	} {
		if r, err := decide(&spec, known{}); err == nil {
			t.Errorf("%+v: %v, want an error", spec, r)
		}
	}
}
