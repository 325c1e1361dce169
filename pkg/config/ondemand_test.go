package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// TestOnDemandOfAGroup: without on_demand, a group creates nothing for pods.
func TestOnDemandOfAGroup(t *testing.T) {
	for _, c := range []struct {
		group string
		want  *fleet.OnDemand
	}{
		{"", nil},
		{`, "on_demand": { "namespaces": ["ci"], "max": 3 }`, &fleet.OnDemand{Namespaces: []string{"ci"}, Max: 3}},
		{
			`, "on_demand": { "namespace_labels": { "example.com/team": "a" }, "instance_types": ["large"], "max": 3, "max_per_namespace": 2 }`,
			&fleet.OnDemand{
				NamespaceLabels: map[string]string{"example.com/team": "a"}, InstanceTypes: []string{"large"}, Max: 3, MaxPerNamespace: 2,
			},
		},
	} {
		groups, problems := parse(t, paced("", "", c.group)).Resolve(nil)
		if got := groups[web].OnDemand; len(problems) > 0 || !got.Equal(c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.group, got, problems, c.want)
		}
	}
}

// TestOnDemandRefuses: problems have a path and the valid values.
func TestOnDemandRefuses(t *testing.T) {
	const at = "groups.default.web.on_demand"
	for _, c := range []struct{ policy, want string }{
		{`{ "max": 1 }`, at + ".namespaces: required, unless namespace_labels is given"},
		{`{ "namespaces": ["ci"] }`, at + ".max: 0: want the maximum number of on-demand instances of the group, 1 to 10000"},
		{`{ "namespaces": ["ci"], "max": 10001 }`, at + ".max: 10001: want "},
		{`{ "namespaces": ["ci"], "max": "3" }`, at + `.max: got `},
		{`{ "namespaces": ["ci"], "max": 3, "max_per_namespace": 4 }`, at + ".max_per_namespace: 4: want "},
		{`{ "namespaces": ["ci"], "max": 3, "max_per_namespace": -1 }`, at + ".max_per_namespace: -1: want "},
		{`{ "namespaces": ["CI"], "max": 3 }`, at + `.namespaces[0]: "CI" is not a Namespace name: want `},
		{`{ "namespaces": ["ci", "ci"], "max": 3 }`, at + `.namespaces[1]: "ci" is listed already`},
		{`{ "namespaces": ["ci*"], "max": 3 }`, at + `.namespaces[0]: "ci*" is not a Namespace name: want `},
		{`{ "namespaces": "*", "max": 3 }`, at + `.namespaces: got `},
		{`{ "namespace_labels": { "a b": "c" }, "max": 3 }`, at + `.namespace_labels: "a b" is not a valid label key: want `},
		{`{ "namespace_labels": { "a": "b c" }, "max": 3 }`, at + `.namespace_labels: "b c" is not a valid value of label a: want `},
		{`{ "namespaces": ["ci"], "instance_types": [""], "max": 3 }`, at + `.instance_types[0]: empty: want an instance type`},
		{`{ "namespaces": ["ci"], "maximum": 3, "max": 3 }`, at + `.maximum: unknown field (have: instance_types, max, `},
	} {
		if got := problemsOf(t, paced("", "", `, "on_demand": `+c.policy)); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.policy, got, c.want)
		}
	}
}

// TestOnDemandBuildsNothingAnew: a changed on_demand does not rotate a group.
func TestOnDemandBuildsNothingAnew(t *testing.T) {
	hashes := func(text string) fleet.Hashes {
		groups, _ := parse(t, text).Resolve(nil)
		return groups[web].Hashes
	}
	with := hashes(paced("", "", `, "on_demand": { "namespaces": ["*"], "max": 3 }`))
	if without := hashes(paced("", "", "")); with != without || with.Infra == "" {
		t.Errorf("hashes %+v and %+v", with, without)
	}
}

// TestChangeOfOnDemand: a dynamic group's on_demand can be set, is kept by other changes, and
// can be removed; a static group's can only be repeated.
func TestChangeOfOnDemand(t *testing.T) {
	const static = `"web": { "template": "knd", "size": 2,`
	s := parse(t, strings.Replace(scene, static, static+` "on_demand": { "namespaces": ["ci"], "max": 2 },`, 1))
	policy := &fleet.OnDemand{Namespaces: []string{"ci"}, Max: 2}
	r := change(t, s, own, config.GroupRecord{}, config.Change{Template: ptr("knd"), OnDemand: policy})
	r = change(t, s, own, r, config.Change{Size: ptr(7)})
	before := group(t, s, own, r)
	if !before.OnDemand.Equal(policy) || before.Disabled != "" {
		t.Errorf("the group is %+v", before)
	}
	r = change(t, s, own, r, config.Change{OnDemand: &fleet.OnDemand{}})
	if g := group(t, s, own, r); g.OnDemand != nil || g.Size != 7 || g.Hashes != before.Hashes || g.Revision <= before.Revision {
		t.Errorf("taken back, the group is %+v", g)
	}
	_, err := s.ChangeGroup(own, r, config.Change{OnDemand: &fleet.OnDemand{Namespaces: []string{"ci"}}}, config.Checks{})
	if err == nil || !strings.Contains(err.Error(), "on_demand.max: 0: want ") {
		t.Errorf("without max: %v", err)
	}
	change(t, s, web, config.GroupRecord{}, config.Change{OnDemand: policy}) // unchanged
	for _, other := range []*fleet.OnDemand{{}, {Namespaces: []string{"*"}, Max: 2}} {
		_, err := s.ChangeGroup(web, config.GroupRecord{}, config.Change{OnDemand: other}, config.Checks{})
		if !errors.Is(err, config.ErrRestricted) || !strings.Contains(err.Error(), "on_demand: ") {
			t.Errorf("a static group, with %+v: %v", other, err)
		}
	}
}

// TestOnDemandOfARecord: a record does not override a static group's on_demand, and a group that
// outlives its static definition keeps it.
func TestOnDemandOfARecord(t *testing.T) {
	const static = `"web": { "template": "knd", "size": 2,`
	text := strings.Replace(scene, static, static+` "on_demand": { "namespaces": ["ci"], "max": 2 },`, 1)
	s := parse(t, text)
	is := record(t, `{ "size": 1, "on_demand": { "namespaces": ["*"], "max": 9 } }`)
	g, ok, problems := s.ResolveGroup(web, is)
	if !ok || g.OnDemand == nil || g.OnDemand.Max != 2 || len(problems) != 1 || !strings.Contains(problems[0].String(), "on_demand: ignored") {
		t.Errorf("the group is %+v, %v", g, problems)
	}
	is = record(t, `{ "size": 1 }`)
	next := parse(t, strings.Replace(text, static, `"new": { "template": "knd", "size": 2,`, 1))
	if g := group(t, next, web, succeed(t, web, is, next, s)); g.Static || g.OnDemand == nil || g.OnDemand.Max != 2 {
		t.Errorf("one that was static is %+v", g)
	}
	bad := records(t, `{ "default": { "own": { "template": "knd", "on_demand": { "namespaces": ["ci"], "max": 0 } } } }`)
	if g, _, problems := s.ResolveGroup(own, bad[own]); g.Disabled == "" ||
		!strings.Contains(problems.Error(), "groups.default.own: on_demand.max: 0: want ") {
		t.Errorf("a bad record is %+v, %v", g, problems)
	}
}
