package config

import (
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file runs the provider's checks of args and userdata, rendered for a sample instance, and
// of the fields that go with them.

// refused returns the provider's problems with the instances of a group, with paths relative to
// it. The error is for args and userdata that can't be rendered: the vars of a single instance may
// fix those.
func (c Checks) refused(s *Shard, g fleet.Group) (Problems, error) {
	if c.Machine == nil {
		return nil, nil
	}
	values := (*Templates)(nil).For(s.sampleFacts(g))
	args, err := values.Args(g.Args)
	if err != nil {
		return nil, err
	}
	userdata, err := values.Userdata(g.Userdata)
	return c.Machine(g, args, userdata), err
}

// providerArgs checks every static group with its template and the defaults, and every template
// that no static group uses as is.
func (v *validator) providerArgs() {
	if v.checks.Machine == nil {
		return
	}
	used := map[string]bool{}
	for _, tenant := range sortedKeys(v.shard.Groups) {
		for _, name := range sortedKeys(v.shard.Groups[tenant]) {
			g := v.shard.Groups[tenant][name]
			used[g.Template] = true
			v.providerArgsOf(join(join("groups", tenant), name), tenant, g)
		}
	}
	for _, name := range sortedKeys(v.shard.Templates) {
		if !used[name] {
			v.providerArgsOf(join("templates", name), v.shard.Templates[name].Tenants.some(), Group{Template: name})
		}
	}
}

// judgements are the problems of groups' instances as made for a new config, without problems too.
// Groups that differ in nothing that is rendered are judged once.
type judgements map[judgedKey]Problems

// judgedKey identifies what the instances of a group are made from.
type judgedKey struct {
	tenant string
	hashes fleet.Hashes
}

func (j *judgements) of(s *Shard, checks Checks, g fleet.Group) Problems {
	key := judgedKey{g.Key.Tenant, g.Hashes}
	if wrong, ok := (*j)[key]; ok {
		return wrong
	}
	wrong, _ := checks.refused(s, g) // what can't be rendered yet is checked when it is
	if text, err := (*Templates)(nil).For(s.sampleFacts(g)).userdata(g.Userdata); err == nil {
		wrong = append(misread(text), wrong...)
	}
	if *j == nil {
		*j = judgements{}
	}
	(*j)[key] = wrong
	return wrong
}

// some returns one of the tenants, default if it is among them.
func (t Tenants) some() string {
	if len(t) > 0 && !t.Allow(fleet.DefaultTenant) {
		return t[0]
	}
	return fleet.DefaultTenant
}

func (v *validator) providerArgsOf(path, tenant string, g Group) {
	if _, ok := v.shard.Templates[g.Template]; !ok || v.problems.full() {
		return
	}
	merged, _ := v.shard.build(fleet.GroupKey{Tenant: tenant}, g, Entry{})
	for _, p := range v.judged.of(v.shard, v.checks, merged) {
		v.addf(v.shard.origin(path, tenant, g, p.Path), "%s", p.Message)
	}
}

// origin returns the config path of a group's field, which may be set by its template or the
// defaults: that of the layer that has most of the path, the last one if several do. The group's
// path is used if no layer has the field.
func (s *Shard) origin(path, tenant string, g Group, field string) string {
	t := s.Templates[g.Template]
	if field == "instance_type" && g.InstanceType == "" && t.InstanceType != "" {
		return join("templates", g.Template) + ".instance_type"
	}
	if strings.HasPrefix(field, "userdata") {
		return below(userdataOrigin(g.Template, t), strings.TrimPrefix(strings.TrimPrefix(field, "userdata"), "."))
	}
	keys := strings.FieldsFunc(strings.TrimPrefix(field, "args"), func(r rune) bool { return strings.ContainsRune(`.["]`, r) })
	most := depth(g.Args, keys)
	for _, layer := range []struct {
		path string
		args map[string]any
	}{{join("templates", g.Template), t.Args}, {"defaults", s.defaultsFor(tenant).Args}} {
		if n := depth(layer.args, keys); n > most {
			most, path = n, layer.path
		}
	}
	return below(path, field)
}

// userdataOrigin returns the path of the userdata of the groups of a template.
func userdataOrigin(name string, t Template) string {
	if t.Userdata == nil {
		return "defaults.userdata"
	}
	return join("templates", name) + ".userdata"
}

// depth returns how many of the keys exist, one below the other.
func depth(args map[string]any, keys []string) (n int) {
	for _, key := range keys {
		value, ok := args[key]
		if !ok {
			break
		}
		n++
		args, _ = value.(map[string]any)
	}
	return n
}

// refusedOverrides is refused for one instance of a group. Here all facts and vars that args
// refer to must exist.
func (s *Shard) refusedOverrides(g fleet.Group, o fleet.Overrides, checks Checks) (problems Problems) {
	own, err := s.ForInstance(g, fleet.Instance{Overrides: &o})
	if err == nil {
		problems, err = checks.refused(s, own)
	}
	if err != nil {
		problems.addf("vars", "the machines of group %s: %v", g.Key, err)
	}
	return problems
}
