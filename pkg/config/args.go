package config

import (
	"cmp"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file has the provider check what a config asks of it: args, rendered for an
// instance that is made up, and what goes with them.

// sampleID is all of an instance's id but its kind.
const sampleID = "01jd3kqw00e0080000000000aa"

// sampleFacts are those of an instance of g that is made up. They have what the
// facts of a real one have when it is created.
func (s *Shard) sampleFacts(g fleet.Group) Facts {
	id, p := g.Kind+sampleID, s.Server.Provider
	found := make(map[string]string, len(s.Images))
	for name, image := range s.Images {
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

// refused lists what the provider has against the instances of a group, with paths
// relative to it. The error is for args that can't be rendered: those of a group can
// become so by the vars of a single instance.
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

// providerArgs checks every static group as it is with its template and the defaults,
// and every template that none of them uses as it is for groups to come.
func (v *validator) providerArgs() {
	if v.checks.Args == nil {
		return
	}
	used := map[string]bool{}
	for _, tenant := range sortedKeys(v.shard.Groups) {
		for _, name := range sortedKeys(v.shard.Groups[tenant]) {
			g := v.shard.Groups[tenant][name]
			used[g.Template] = true
			v.providerArgsOf(join(join("groups", tenant), name), g)
		}
	}
	for _, name := range sortedKeys(v.shard.Templates) {
		if !used[name] {
			v.providerArgsOf(join("templates", name), Group{Template: name})
		}
	}
}

func (v *validator) providerArgsOf(path string, g Group) {
	if _, ok := v.shard.Templates[g.Template]; !ok || v.problems.full() {
		return
	}
	merged, _ := v.shard.build(fleet.GroupKey{}, g, Entry{})
	wrong, _ := v.checks.refused(v.shard, merged) // what can't be rendered yet is left to the rendering
	for _, p := range wrong {
		v.addf(v.shard.origin(path, g, p.Path), "%s", p.Message)
	}
}

// origin is the path in the config of a field that a group has, be it from its
// template or the defaults: of the layer that holds most of the path, of several the
// last. What no layer holds is missing in the group.
func (s *Shard) origin(path string, g Group, field string) string {
	t := s.Templates[g.Template]
	if field == "instance_type" && g.InstanceType == "" && t.InstanceType != "" {
		return join("templates", g.Template) + ".instance_type"
	}
	keys := strings.FieldsFunc(strings.TrimPrefix(field, "args"), func(r rune) bool { return strings.ContainsRune(`.["]`, r) })
	most := depth(g.Args, keys)
	for _, layer := range []struct {
		path string
		args map[string]any
	}{{join("templates", g.Template), t.Args}, {"defaults", s.Defaults.Args}} {
		if n := depth(layer.args, keys); n > most {
			most, path = n, layer.path
		}
	}
	return below(path, field)
}

// depth is how many of the keys lead somewhere, one after the other.
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

// refusedOverrides is refused for one instance of a group. Here everything that args
// name has to be there.
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
