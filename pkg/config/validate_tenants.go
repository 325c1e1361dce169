package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
)

// This file checks which tenants may use what: that the lists of tenants are valid, and that
// what a resource uses is usable by all of its tenants.

// access checks which tenants may use what.
type access struct {
	*findings
	shard *Shard
	toOwn bool // messages are for one tenant, which must not learn of others
	// excused collects the violations of a text that was accepted before; nil: they are
	// problems.
	excused *excuses
	granted *excuses // violations that are permitted; nil: none
}

func accessOf(v *validator) access {
	return access{findings: &v.findings, shard: v.shard, toOwn: v.toOwn, excused: v.excused}
}

// who checks the list of tenants of a resource.
func (a access) who(path string, list Tenants) {
	if list == nil {
		return
	}
	if len(list) == 0 {
		a.addf(path, `empty: want the tenants that may use it, such as [%q], or [%q] for all`, fleet.DefaultTenant, everyTenant)
	}
	a.unique(path, list, "the id of a tenant")
	for i, name := range list {
		switch {
		case name == "" || a.shard.HasTenant(name) || a.problems.full():
		case name != everyTenant:
			refer(a.findings, at(path, i), "tenant", name, "tenants", a.shard.allTenants())
		case len(list) > 1:
			a.addf(at(path, i), "%q is all tenants: want it alone, or a list of tenants without it", everyTenant)
		}
	}
}

// quota checks a quota, and that the groups of the config keep within it.
func (a access) quota(path, tenant string, q *Quota) {
	if a.excused != nil {
		found := &findings{broken: a.broken}
		access{findings: found, shard: a.shard}.quota(path, tenant, q)
		if len(found.problems) > 0 {
			a.excused.quotas[tenant] = true
		}
		return
	}
	for _, f := range q.fields() {
		if *f.value != nil {
			between(a.findings, path+"."+f.name, **f.value, f.least, f.most)
		}
	}
	instances := 0
	for _, g := range a.shard.Groups[tenant] {
		instances += a.shard.sizeWith(g, Entry{})
	}
	for _, c := range []struct {
		field string
		limit *int
		has   int
	}{{"groups", q.Groups, len(a.shard.Groups[tenant])}, {"instances", q.Instances, instances}} {
		if c.limit != nil && *c.limit >= 0 && c.has > *c.limit {
			a.addf(path+"."+c.field, "%d are allowed, but the groups of this config need %d: want at least that", *c.limit, c.has)
		}
	}
}

// sections checks the lists of tenants of secrets and stored files.
func (a access) sections() {
	for _, name := range sortedKeys(a.shard.Secrets) {
		path := join("secrets", name)
		a.who(path+".tenants", a.shard.Secrets[name].Tenants)
		if rest, isPattern := strings.CutSuffix(name, "*"); !isPattern {
			a.secretName(path, name)
		} else if rest != "" && !secretNamePattern.MatchString(rest+"x") {
			a.addf(path, "%.80q is not a pattern of secrets' names: want the name of a secret, or the beginning of names and one * behind it", name)
		}
	}
	for _, key := range sortedKeys(a.shard.Files) {
		path := join("files", key)
		a.who(path+".tenants", a.shard.Files[key].Tenants)
		rest, ok := strings.CutPrefix(key, StoragePrefix)
		if rest = strings.TrimSuffix(rest, "/"); key != StoragePrefix && (!ok || !isRelativePath(rest)) {
			a.addf(path, "%.80q is not valid: want the key of an object below %s, or a folder there that ends in /, such as %sprod/",
				key, StoragePrefix, StoragePrefix)
		}
	}
}

// reach checks that a resource is usable by all tenants that use it through another one.
func (a access) reach(path, what, name, where string, of, users Tenants) {
	if a.problems.full() || a.isBroken(where) {
		return
	}
	lacking := slices.DeleteFunc(a.lacking(users, of), func(tenant string) bool { return a.granted.excuse(where, tenant) })
	switch {
	case len(lacking) == 0:
	case a.excused != nil:
		a.excused.add(where, lacking...)
	case a.toOwn:
		a.addf(path, "the %s %.80q is not for %s: want %s.tenants of the shard's config to name it", what, name, tenantsText(lacking), where)
	default:
		a.addf(path, "the %s %.80q is not for %s: want %s.tenants: %s", what, name, tenantsText(lacking), where, of.with(lacking))
	}
}

// lacking returns the tenants among users that are not among of, sorted.
func (a access) lacking(users, of Tenants) []string {
	if of.every() {
		return nil
	}
	if users.every() {
		users = sortedKeys(a.shard.allTenants())
	}
	if users == nil {
		users = Tenants{fleet.DefaultTenant}
	}
	if of == nil {
		of = Tenants{fleet.DefaultTenant}
	}
	has := make(map[string]bool, len(of))
	for _, tenant := range of {
		has[tenant] = true
	}
	lacking := map[string]bool{}
	for _, tenant := range users {
		if !has[tenant] && a.shard.HasTenant(tenant) { // an undeclared tenant is reported where it is listed
			lacking[tenant] = true
		}
	}
	return slices.Sorted(maps.Keys(lacking))
}

// with returns the list with more tenants added, as config text.
func (t Tenants) with(more []string) string {
	if t == nil {
		t = Tenants{fleet.DefaultTenant}
	}
	quoted := make([]string, 0, len(t)+len(more))
	for _, name := range slices.Concat(t, more) {
		quoted = append(quoted, strconv.Quote(name))
	}
	return "[" + strings.Join(someOf(quoted), ", ") + "]"
}

func tenantsText(names []string) string {
	if len(names) == 1 {
		return fmt.Sprintf("tenant %q", names[0])
	}
	return "tenants " + strings.Join(someOf(names), ", ")
}

// file checks that the source of a file is usable by all tenants that receive the file.
func (a access) file(path string, f fleet.File, users Tenants) {
	source := join(path, "source")
	switch f.Kind {
	case fileSecret:
		where, of := a.secret(f.Source)
		a.reach(source, "secret", f.Source, where, of, users)
	case fileStorage:
		where, of := a.storage(f.Source)
		a.reach(source, "stored file", f.Source, where, of, users)
	case fileCertificate:
		if c, ok := a.shard.Certificates[f.Template]; ok {
			a.reach(join(path, "template"), "certificate", f.Template, join("certificates", f.Template), c.Tenants, users)
		}
	}
}

// defaults requires a config with several tenants to say which of them have the defaults,
// because either choice changes what machines are built from.
func (a access) defaults() {
	d := a.shard.Defaults
	a.who("defaults.tenants", d.Tenants)
	isEmpty := len(d.Args) == 0 && len(d.Vars) == 0 && d.Userdata == nil
	switch unsaid := d.Tenants == nil && !isEmpty && len(a.lacking(Tenants{everyTenant}, nil)) > 0; {
	case unsaid && a.excused != nil:
		a.excused.defaults = true
	case unsaid:
		a.addf("defaults.tenants",
			`required with tenants other than %q: want those whose groups have the defaults, such as [%q], or [%q] for all`,
			fleet.DefaultTenant, fleet.DefaultTenant, everyTenant)
	}
}

// group checks that a group's tenant may use what it refers to.
func (a access) group(path, tenant string, g Group) {
	users := Tenants{tenant}
	if t, ok := a.shard.Templates[g.Template]; ok {
		a.reach(below(path, "template"), "template", g.Template, join("templates", g.Template), t.Tenants, users)
	}
	pool := a.shard.effectivePool(g)
	if p, ok := a.shard.Server.SubnetPools[pool]; ok {
		a.reach(below(path, "subnet_pool"), "subnet pool", pool, join("server.subnet_pools", pool), p.Tenants, users)
	}
	for i, name := range g.LoadBalancers {
		if lb, ok := a.shard.LoadBalancers[name]; ok {
			a.reach(at(below(path, "load_balancers"), i), "load balancer", name, join("load_balancers", name), lb.Tenants, users)
		}
	}
}
