package config

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/record"
)

// Orphan returns a group that has no definition but may have instances. Nothing says that they
// should be removed, so they are left alone.
func (s *Shard) Orphan(key fleet.GroupKey) fleet.Group { return s.unknown(key, Entry{}) }

// unknown returns a group of which only its instances are known.
func (s *Shard) unknown(key fleet.GroupKey, entry Entry) fleet.Group {
	why := "the record of this group is not in object storage, although the group was not deleted. Its definition is unknown, " +
		"so its instances are left alone: none is removed, replaced or added. Restore the record, create the group again, " +
		"with a template and a size, or delete it, which removes its instances"
	return fleet.Group{
		Key: key, Size: value(entry.Size), DrainTimeout: s.Server.DefaultDrainTimeout.Std(), Revision: entry.Revision,
		Disabled: why, RecordMissing: why,
	}
}

// recordMissing describes a group whose record is missing but whose definition is known.
func recordMissing(isStatic bool) string {
	what, reset := "record of this group", "restores the record"
	if isStatic {
		what, reset = "override of this group, or the config that the shard had accepted,", "returns to the static definition"
	}
	return "the " + what + " is not in object storage, or is older than the last known version, although it was not deleted. " +
		"The last known version stays in effect: no working instance is removed or replaced. Resetting the group " + reset +
		", changing more than rollout_paused stores it with the change, and deleting a dynamic group removes its instances"
}

func checkKey(key fleet.GroupKey) error {
	if err := fleet.CheckName(key.Tenant); err != nil {
		return err
	}
	return fleet.CheckName(key.Name)
}

func below(path, field string) string {
	switch {
	case path == "":
		return field
	case field == "":
		return path
	case field[0] == '[':
		return path + field
	}
	return path + "." + field
}

// resolve builds one group. wrong, with paths relative to the entry, is why the group is
// disabled; ignored are the fields of the entry without effect.
func (s *Shard) resolve(key fleet.GroupKey, entry Entry) (group fleet.Group, wrong, ignored Problems) {
	static, isStatic := s.Static(key)
	switch {
	case isStatic:
		ignored = s.restricted(static, entry)
		group, wrong = s.build(key, static, entry)
		group.FilesHeld = len(wrong) > 0
		wrong = append(wrong, append(s.concerned(key, static), instead(s, &group, entry.Aborted)...).becomes(filesGoOn)...)
		group.Static = true
		group.StaticSize, _ = sizeOf(s.Templates, static, Entry{})
		if entry.Missing {
			group.RecordMissing = recordMissing(true)
		}
	case entry.Removed:
		// An invalid definition must not prevent the removal.
		group, wrong = s.build(key, entry.definition(), entry)
		s.furnish(&group, entry, len(wrong) == 0)
		wrong = nil
		group.Removed, group.Size, group.Leaving = true, 0, nil
	case entry.Undefined:
		group = s.unknown(key, entry)
	default:
		definition := entry.definition()
		group, wrong = s.build(key, definition, entry)
		becomes := s.furnish(&group, entry, len(wrong) == 0)
		if len(entry.unreadable) == 0 {
			own := append(s.checkOwn(key, definition), s.concerned(key, definition)...)
			wrong = append(wrong, append(own, instead(s, &group, entry.Aborted)...).becomes(becomes)...)
		}
		if len(wrong) > 0 {
			wrong = append(wrong, leftFiles(s, group)...)
		}
		if entry.Missing {
			group.RecordMissing = recordMissing(false)
		}
	}
	return group, wrong.sorted(), append(ignored, foreign(entry.unknown)...)
}

// foreign reports unknown fields, which are kept.
func foreign(unknown record.Unknown) Problems {
	var problems Problems
	for _, name := range unknown.Names() {
		problems.addf(join("", name), "ignored: unknown field, of a newer version or a mistake; it is kept")
	}
	return problems
}

// definition returns the definition of a dynamic group.
func (e Entry) definition() Group {
	return Group{
		Template: value(e.Template), SubnetPool: value(e.SubnetPool),
		Args: e.Args, LoadBalancers: e.LoadBalancers, DrainTimeout: e.DrainTimeout, OnDemand: e.OnDemand,
	}
}

// value returns the first value that is set, or zero.
func value[T any](layers ...*T) (v T) {
	if set := cmp.Or(layers...); set != nil {
		v = *set
	}
	return v
}

// build merges the layers. g is the definition, entry overrides it.
func (s *Shard) build(key fleet.GroupKey, g Group, entry Entry) (fleet.Group, Problems) {
	template, defaults := s.Templates[g.Template], s.defaultsFor(key.Tenant)
	out := fleet.Group{
		Key: key, Template: g.Template, Kind: template.Kind, Arch: template.Arch,
		InstanceType:  cmp.Or(value(entry.InstanceType), g.InstanceType, template.InstanceType),
		SubnetPool:    cmp.Or(g.SubnetPool, template.SubnetPool),
		Args:          Merge(defaults.Args, template.Args, g.Args),
		Vars:          Merge(defaults.Vars, template.Vars, g.Vars, entry.Vars),
		Files:         copyFiles(template.Files),
		FilesOptional: template.filesOptional(),
		LoadBalancers: slices.Clone(g.LoadBalancers),
		DrainTimeout:  value(g.DrainTimeout, &s.Server.DefaultDrainTimeout).Std(),
		OnDemand:      g.OnDemand.Clone(),
		Leaving:       slices.Clone(entry.Leaving),
		Revision:      entry.Revision,
		MaxSurge:      value(entry.Rotation, g.Rotation, template.Rotation).MaxSurge,
		RolloutPaused: entry.RolloutPaused,
		Manager:       entry.Manager,
		Userdata:      value(template.Userdata, defaults.Userdata),
	}
	size, isSet := sizeOf(s.Templates, g, entry)
	out.Size, out.SizeUnset = size, !isSet
	wrong := slices.Clone(entry.unreadable)
	if len(out.Vars) > maxVars {
		wrong.addf("vars", "%d vars after merging: at most %d are allowed", len(out.Vars), maxVars)
	}
	if out.InstanceType == "" && s.Server.Provider.Kind == ProviderAWS {
		wrong.addf("instance_type", "required with the provider aws, since the template names none")
	}
	out.Subnets = slices.Clone(s.Server.SubnetPools[out.SubnetPool].Subnets)
	return out, append(wrong, hash(s, &out)...)
}

// hash sets a group's hashes.
func hash(s *Shard, g *fleet.Group) (problems Problems) {
	hashes, err := s.Hashes(*g)
	if err != nil {
		problems.addf("", "hash the definition: %v", err)
	}
	g.Hashes = hashes
	return problems
}

// checkOwn checks the definition of a dynamic group.
func (s *Shard) checkOwn(key fleet.GroupKey, g Group) Problems {
	v := &validator{shard: s, users: Tenants{key.Tenant}, toOwn: true}
	if !s.HasTenant(key.Tenant) {
		v.addf("", "%v", s.CheckTenant(key.Tenant))
		return v.problems
	}
	v.args("args", g.Args)
	balancers := usableBy(key.Tenant, s.LoadBalancers, LoadBalancer.who)
	for i, lb := range g.LoadBalancers {
		refer(&v.findings, at("load_balancers", i), "load balancer", lb, "load_balancers", balancers)
	}
	templates := usableBy(key.Tenant, s.Templates, Template.who)
	if g.Template == "" {
		v.addf("template", "required, since static config names no such group %s", have(templates))
		return v.problems
	}
	if template, ok := refer(&v.findings, "template", "template", g.Template, "templates", templates); ok {
		v.ownSubnetPool(key.Tenant, g, template)
	}
	return v.problems
}

// ownSubnetPool checks that a dynamic group may use its subnet pool.
func (v *validator) ownSubnetPool(tenant string, g Group, t Template) {
	usable := usableBy(tenant, v.shard.Server.SubnetPools, SubnetPool.who)
	allowed := v.shard.dynamicSubnetPools(usable)
	pool := cmp.Or(g.SubnetPool, t.SubnetPool)
	if pool == "" {
		v.addf("subnet_pool", "required, since the template %q names none %s", g.Template, have(allowed))
		return
	}
	if _, exists := usable[pool]; exists && !allowed[pool] {
		v.addf("subnet_pool", "the subnet pool %q is not for dynamic groups %s", pool, have(allowed))
		return
	}
	refer(&v.findings, "subnet_pool", "subnet pool", pool, "server.subnet_pools", allowed)
}

// dynamicSubnetPools returns the pools that dynamic groups may use.
func (s *Shard) dynamicSubnetPools(of map[string]SubnetPool) map[string]bool {
	pools := map[string]bool{}
	for name := range of {
		if len(s.Server.DynamicSubnetPools) == 0 || slices.Contains(s.Server.DynamicSubnetPools, name) {
			pools[name] = true
		}
	}
	return pools
}

func (s *Shard) allTenants() map[string]Tenant {
	tenants := map[string]Tenant{fleet.DefaultTenant: {}}
	maps.Copy(tenants, s.Tenants)
	return tenants
}
