package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file handles a text that an earlier version accepted, before there were rules about
// tenants' use of resources, and quotas. Such a text runs: groups that violate these rules are
// held individually, and keep what they had.

// excuses are an accepted text's violations of those rules.
type excuses struct {
	uses     map[use]bool
	defaults bool            // defaults.tenants is unset: the defaults apply to all tenants
	quotas   map[string]bool // by tenant whose groups exceed their quota
}

// use is a resource, by its config path, and a tenant that may not use it.
type use struct{ where, tenant string }

func newExcuses() *excuses { return &excuses{uses: map[use]bool{}, quotas: map[string]bool{}} }

// add records that tenants keep using a resource.
func (e *excuses) add(where string, tenants ...string) {
	for _, tenant := range tenants {
		e.uses[use{where, tenant}] = true
	}
}

// excuse reports whether a tenant keeps using a resource despite the rules.
func (e *excuses) excuse(where, tenant string) bool { return e != nil && e.uses[use{where, tenant}] }

// completed adds the resources reached through others that are excused; nil if the text has no
// violations.
func (e *excuses) completed(s *Shard) *excuses {
	if len(e.uses) == 0 && len(e.quotas) == 0 && !e.defaults {
		return nil
	}
	reach := access{findings: &findings{}, shard: s, excused: e}
	through := func(tenant, template string) {
		for _, f := range s.Templates[template].Files {
			reach.file("", f, Tenants{tenant})
		}
	}
	for tenant, groups := range s.Groups {
		for _, g := range groups {
			if e.excuse(join("templates", g.Template), tenant) {
				through(tenant, g.Template)
			}
		}
	}
	if !unlisted(s) {
		return e
	}
	for tenant := range s.Tenants { // groups created through the API had them, too
		for template := range s.Templates {
			e.add(join("templates", template), tenant)
			through(tenant, template)
		}
	}
	return e
}

// unlisted reports whether no resource lists tenants, as in every text of a version without
// these rules: there, all tenants could use everything.
func unlisted(s *Shard) bool {
	return s.Defaults.Tenants == nil && len(s.Secrets) == 0 && len(s.Files) == 0 &&
		!anyLists(s.Templates, Template.who) && !anyLists(s.Server.SubnetPools, SubnetPool.who) &&
		!anyLists(s.LoadBalancers, LoadBalancer.who) && !anyLists(s.Images, Image.who) &&
		!anyLists(s.Certificates, Certificate.who)
}

func anyLists[V any](section map[string]V, who func(V) Tenants) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(section)), func(entry V) bool { return who(entry) != nil })
}

// mayUse reports whether a tenant may use a template, or keeps using it.
func (s *Shard) mayUse(tenant, template string) bool {
	t, ok := s.Templates[template]
	return ok && (t.Tenants.Allow(tenant) || s.excused.excuse(join("templates", template), tenant))
}

// concerned returns a group's violations in an accepted text, worded for its tenant, with paths
// relative to the group. Paths outside the group are part of the message.
func (s *Shard) concerned(key fleet.GroupKey, g Group) Problems {
	if s.excused == nil {
		return nil
	}
	own := &validator{shard: s, users: Tenants{key.Tenant}, toOwn: true}
	_, isStatic := s.Static(key)
	if isStatic {
		accessOf(own).group("", key.Tenant, g)
		own.args("args", g.Args)
	}
	beyond := &validator{shard: s, users: own.users, toOwn: true}
	if s.excused.defaults && key.Tenant != fleet.DefaultTenant {
		beyond.addf("defaults.tenants",
			"it does not say whether the defaults apply to tenant %q: list the tenants whose groups have them", key.Tenant)
	}
	defaults := s.defaultsFor(key.Tenant)
	beyond.args("defaults.args", defaults.Args)
	beyond.userdata("defaults.userdata", defaults.Userdata)
	if t, ok := s.Templates[g.Template]; ok && s.mayUse(key.Tenant, g.Template) {
		beyond.reached(join("templates", g.Template), t)
	}
	if isStatic && s.excused.quotas[key.Tenant] {
		quota := s.Tenants[key.Tenant].Quota
		accessOf(beyond).quota(join("tenants", key.Tenant)+".quota", key.Tenant, &quota)
	}
	problems := own.problems
	for _, p := range beyond.problems {
		problems.addf("", "%s", p)
	}
	return problems
}

// reached checks that what a template reaches is usable by its tenants.
func (v *validator) reached(path string, t Template) {
	v.args(path+".args", t.Args)
	v.userdata(path+".userdata", t.Userdata)
	v.files(path+".files", t.Files)
	for _, name := range sortedKeys(t.Files) {
		c, ok := v.shard.Certificates[t.Files[name].Template]
		if !ok {
			continue
		}
		of := join("certificates", t.Files[name].Template)
		v.text(of+".cn", c.CN, false)
		for field, list := range map[string][]string{"organization": c.Organization, "dns": c.DNS, "ip": c.IP, "uri": c.URI} {
			for i, text := range list {
				v.text(at(of+"."+field, i), text, false)
			}
		}
	}
}

// What happens to the machines of a disabled group, appended to the reason.
const (
	filesGoOn = "until then no machine of this group is created, replaced or removed; running ones keep receiving files and certificates"
	filesStay = "until then no machine of this group is created, replaced or removed; running ones keep the files they have, " +
		"and their certificates are not renewed"
	filesAsKept = filesGoOn + ", from the last template version that this tenant could use"
)

// becomes appends to each problem what happens to the group's machines.
func (ps Problems) becomes(what string) Problems {
	out := make(Problems, 0, len(ps))
	for _, p := range ps {
		out = append(out, Problem{Path: p.Path, Message: fmt.Sprintf("%s; %s", p.Message, what)})
	}
	return out
}
