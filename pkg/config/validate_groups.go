package config

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

const (
	// MaxGroupSize is the largest size of a group.
	MaxGroupSize    = 10_000
	maxDrainTimeout = 24 * time.Hour
)

func (v *validator) templates() {
	s := v.shard
	accessOf(v).defaults()
	v.users = s.Defaults.Tenants
	v.args("defaults.args", s.Defaults.Args)
	v.vars("defaults.vars", s.Defaults.Vars)
	v.userdata("defaults.userdata", s.Defaults.Userdata)
	for _, name := range sortedKeys(s.Templates) {
		path, t := join("templates", name), s.Templates[name]
		v.label(path, name)
		accessOf(v).who(path+".tenants", t.Tenants)
		v.users = t.Tenants
		v.kind(path+".kind", t.Kind)
		v.oneOf(path+".arch", t.Arch, "amd64", "arm64")
		if t.Size != nil {
			between(&v.findings, path+".size", *t.Size, 0, MaxGroupSize)
		}
		if t.SubnetPool != "" {
			v.subnetPool(path+".subnet_pool", t.SubnetPool)
		}
		checkInstanceType(v, path+".instance_type", t.InstanceType)
		if err := v.checks.archFits(t.InstanceType, t.Arch); err != nil {
			v.addf(path+".instance_type", "%v", err)
		}
		v.args(path+".args", t.Args)
		v.vars(path+".vars", t.Vars)
		v.userdata(path+".userdata", t.Userdata)
		v.files(path+".files", t.Files)
	}
}

func (v *validator) kind(path, kind string) {
	if err := fleet.CheckKind(kind); kind == "" {
		v.addf(path, "required: want exactly three lowercase letters")
	} else if err != nil {
		v.addf(path, "%v", err)
	} else if kind == fleet.OperatorKind {
		v.addf(path, "the kind %q is reserved for operators", kind)
	}
}

func (v *validator) subnetPool(path, name string) {
	refer(&v.findings, path, "subnet pool", name, "server.subnet_pools", v.shard.Server.SubnetPools)
}

func (v *validator) groups() {
	for _, tenant := range sortedKeys(v.shard.Groups) {
		path := join("groups", tenant)
		if !v.shard.HasTenant(tenant) && !v.isBroken("tenants") {
			refer(&v.findings, path, "tenant", tenant, "tenants", v.shard.allTenants())
		}
		for _, name := range sortedKeys(v.shard.Groups[tenant]) {
			v.name(join(path, name), name)
			v.users = Tenants{tenant}
			v.group(join(path, name), v.shard.Groups[tenant][name])
			accessOf(v).group(join(path, name), tenant, v.shard.Groups[tenant][name])
		}
	}
}

func (v *validator) group(path string, g Group) {
	if g.Size != nil {
		between(&v.findings, path+".size", *g.Size, 0, MaxGroupSize)
	}
	if g.DrainTimeout != nil {
		v.duration(path+".drain_timeout", *g.DrainTimeout, 0, maxDrainTimeout)
	}
	checkOnDemand(&v.findings, path+".on_demand", g.OnDemand)
	checkInstanceType(v, path+".instance_type", g.InstanceType)
	v.args(path+".args", g.Args)
	v.vars(path+".vars", g.Vars)
	for i, lb := range g.LoadBalancers {
		refer(&v.findings, at(path+".load_balancers", i), "load balancer", lb, "load_balancers", v.shard.LoadBalancers)
	}
	v.unique(path+".load_balancers", g.LoadBalancers, "the name of a load balancer")
	if g.SubnetPool != "" {
		v.subnetPool(path+".subnet_pool", g.SubnetPool)
	}
	if !v.given(path+".template", g.Template, "the name of a template") {
		return
	}
	if t, ok := refer(&v.findings, path+".template", "template", g.Template, "templates", v.shard.Templates); ok {
		v.groupOfTemplate(path, g, t)
	}
}

// groupOfTemplate checks a group together with its template.
func (v *validator) groupOfTemplate(path string, g Group, t Template) {
	templatePath := join("templates", g.Template)
	if g.SubnetPool == "" && t.SubnetPool == "" && !v.isBroken(templatePath+".subnet_pool") {
		v.addf(path+".subnet_pool", "required, since the template %q names none %s", g.Template, have(v.shard.Server.SubnetPools))
	}
	if g.InstanceType == "" && t.InstanceType == "" && v.shard.Server.Provider.Kind == ProviderAWS {
		v.addf(path+".instance_type", "required with the provider aws, since the template %q names none", g.Template)
	}
	if err := v.checks.archFits(g.InstanceType, t.Arch); err != nil {
		v.addf(path+".instance_type", "%v", err)
	}
	if n := len(Merge(v.shard.Defaults.Vars, t.Vars, g.Vars)); n > maxVars {
		v.addf(path+".vars", "%d vars after merging: at most %d are allowed", n, maxVars)
	}
}

// checkRemoved checks that each name is of a group that the config takes all machines from.
func checkRemoved(f *findings, s *Shard) {
	for i, name := range s.Removed {
		path := at("removed", i)
		key, err := fleet.ParseGroupKey(name)
		if err != nil {
			if name != "" { // which unique reports
				f.addf(path, "%v", err)
			}
			continue
		}
		g, defined := s.Groups[key.Tenant][key.Name]
		size := g.Size
		if size == nil {
			size = s.Templates[g.Template].Size
		}
		if defined && (size == nil || *size > 0) {
			f.addf(path, "%s keeps machines: remove it from groups or set its size to 0, or else remove it from this list", key)
		}
	}
	f.unique("removed", s.Removed, "a group, as tenant/group")
}

const (
	// maxVars bounds the top-level vars of a group.
	maxVars = 1000
	// maxFreeNesting bounds the nesting of args and vars. It is below MaxNesting to leave room
	// for what contains them.
	maxFreeNesting = 32
)

func nesting(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, 1+nesting(e))
		}
	case []any:
		for _, e := range v {
			deepest = max(deepest, 1+nesting(e))
		}
	}
	return deepest
}
