package config

import (
	"cmp"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file runs the provider's checks of args, rendered for a sample instance, and of the
// fields that go with them.

// sampleID is a sample instance's ID without the kind.
const sampleID = "01jd3kqw00e0080000000000aa"

// sampleFacts returns the facts of a sample instance of g, with the fields that a real one has
// when it is created.
func (s *Shard) sampleFacts(g fleet.Group) Facts {
	id, p := g.Kind+sampleID, s.Server.Provider
	found := make(map[string]string, len(s.Images))
	for name, image := range usableBy(g.Key.Tenant, s.Images, Image.who) {
		found[name] = cmp.Or(image.Fallback, "ami-0123456789abcdef0")
	}
	return Facts{
		Instance: InstanceFacts{ID: id, Kind: g.Kind, Arch: g.Arch, Type: g.InstanceType, Hostname: id, FQDN: id},
		Cluster:  ClusterFacts{ID: s.Cluster.ID, CACert: "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"},
		Server: ServerFacts{
			Shard: "shard", RegistrationAddr: "192.0.2.1:8992", AgentAddr: "192.0.2.1:8994", OperatorAddr: "192.0.2.1:8993",
		},
		Provider: ProviderFacts{Kind: p.Kind, Region: p.Region, Zone: p.Zone},
		Vars:     g.Vars,
		Image:    found,
	}
}

// refused returns the provider's problems with the instances of a group, with paths relative
// to it. The error is for args that can't be rendered: the vars of a single instance may fix
// those.
func (c Checks) refused(s *Shard, g fleet.Group) (Problems, error) {
	if c.Args == nil {
		return nil, nil
	}
	args, err := RenderArgs(g.Args, s.sampleFacts(g))
	if err != nil {
		return nil, err
	}
	return c.Args(g, args), nil
}

// providerArgs checks every static group with its template and the defaults, and every template
// that no static group uses as is.
func (v *validator) providerArgs() {
	if v.checks.Args == nil {
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
	wrong, _ := v.checks.refused(v.shard, merged) // args that can't be rendered yet are checked when rendered
	for _, p := range wrong {
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
		problems.addf("vars", "the args of group %s: %v", g.Key, err)
	}
	return problems
}
