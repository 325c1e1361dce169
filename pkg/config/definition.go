package config

import (
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// Definition is what the machines of a group are built from.
type Definition struct {
	Template     string          `json:"template"`
	Defaults     bool            `json:"defaults,omitempty"` // the config's defaults are part of it
	Kind         string          `json:"kind"`
	Arch         string          `json:"arch"`
	InstanceType string          `json:"instance_type,omitempty"`
	SubnetPool   string          `json:"subnet_pool"`
	Args         map[string]any  `json:"args,omitempty"`
	Userdata     *fleet.Userdata `json:"userdata,omitempty"`
}

// builds reports whether machines are built from the defaults.
func (d Defaults) builds() bool { return len(d.Args) > 0 || d.Userdata != nil }

func definitionOf(s *Shard, g fleet.Group) Definition {
	d := Definition{
		Template: g.Template, Defaults: s.defaultsFor(g.Key.Tenant).builds(),
		Kind: g.Kind, Arch: g.Arch, InstanceType: g.InstanceType, SubnetPool: g.SubnetPool, Args: g.Args,
	}
	if g.Userdata != (fleet.Userdata{}) {
		d.Userdata = &g.Userdata
	}
	return d
}

func (d Definition) apply(g *fleet.Group) {
	g.Kind, g.Arch, g.InstanceType, g.SubnetPool = d.Kind, d.Arch, d.InstanceType, d.SubnetPool
	g.Args, g.Userdata = Merge(d.Args), value(d.Userdata)
}

// instead gives a group the definition before, if it refuses the one that it has. The problems are why it
// can't have that any more.
func instead(s *Shard, g *fleet.Group, a *Aborted) Problems {
	if a == nil {
		return nil
	}
	g.Aborted, g.Refuses = true, a.Refused
	if a.Refused == "" || a.Refused != g.Hashes.Infra {
		return nil
	}
	g.Asked = &fleet.Asked{InstanceType: g.InstanceType, SubnetPool: g.SubnetPool, Infra: g.Hashes.Infra}
	a.Instead.apply(g)
	g.Subnets = slices.Clone(s.Server.SubnetPools[g.SubnetPool].Subnets)
	return append(checkInstead(s, g.Key, a.Instead), hash(s, g)...)
}

// checkInstead checks that a group may have a definition.
func checkInstead(s *Shard, key fleet.GroupKey, d Definition) Problems {
	v := &validator{shard: s, users: Tenants{key.Tenant}, toOwn: true}
	if _, there := s.Templates[d.Template]; there && !s.mayUse(key.Tenant, d.Template) {
		v.addf("aborted.instead.template", "the template %q is not for this tenant any more", d.Template)
	}
	if d.Defaults && s.Defaults.builds() && !s.defaultsFor(key.Tenant).builds() {
		v.addf("aborted.instead.defaults", "the defaults are not for this tenant any more")
	}
	pools := s.Server.SubnetPools
	usable := usableBy(key.Tenant, pools, SubnetPool.who)
	if _, isStatic := s.Static(key); !isStatic {
		allowed := s.dynamicSubnetPools(usable)
		refer(&v.findings, "aborted.instead.subnet_pool", "subnet pool", d.SubnetPool, "server.subnet_pools", allowed)
	} else {
		refer(&v.findings, "aborted.instead.subnet_pool", "subnet pool", d.SubnetPool, "server.subnet_pools", usable)
	}
	v.args("aborted.instead.args", d.Args)
	v.userdata("aborted.instead.userdata", d.Userdata)
	return v.problems
}
