package config

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/record"
)

// Resolve merges the static groups with the dynamic ones into what each group
// is to be. Args and vars merge defaults, template, group, dynamic entry, in
// this order. No group shares memory with another or with s and d.
//
// A dynamic entry that makes no sense is reported, with a path in the dynamic
// text, and disables its group; every other group is as it would be without it.
// An entry whose tenant or group isn't even an id is only reported. For a group
// that static config names the entry counts for size, instance_type, vars, rotation and
// leaving; what else it holds, and disagrees with static config, is reported
// and ignored, and so is a field that this version does not know.
func (s *Shard) Resolve(d Dynamic) (map[fleet.GroupKey]fleet.Group, Problems) {
	groups := map[fleet.GroupKey]fleet.Group{}
	problems := foreign(d.unknown)
	for key := range s.keys(d) {
		group, ok, wrong := s.ResolveGroup(d, key)
		if ok {
			groups[key] = group
		}
		for _, p := range wrong {
			problems.addf(p.Path, "%s", p.Message)
		}
	}
	return groups, problems.sorted()
}

// ResolveGroup is Resolve of one group; false when neither static config nor d names it,
// or it isn't even an id.
func (s *Shard) ResolveGroup(d Dynamic, key fleet.GroupKey) (group fleet.Group, ok bool, problems Problems) {
	_, isStatic := s.Static(key)
	entry, isDynamic := d.Entry(key)
	if !isStatic && !isDynamic {
		return fleet.Group{}, false, nil
	}
	path := join(join("groups", key.Tenant), key.Name)
	if err := checkKey(key); err != nil {
		problems.addf(path, "%v", err)
		return fleet.Group{}, false, problems
	}
	group, wrong, ignored := s.resolve(key, entry)
	if len(wrong) > 0 {
		group.Disabled = wrong.Error()
	}
	for _, p := range slices.Concat(wrong, ignored) {
		problems.addf(below(path, p.Path), "%s", p.Message)
	}
	return group, true, problems
}

// Orphan is a group that neither config names but that may have instances. Nothing says
// that they are to go, so they are left as they are.
func (s *Shard) Orphan(key fleet.GroupKey) fleet.Group { return s.unknown(key, Entry{}) }

// unknown is a group of which nothing is known but that it has instances.
func (s *Shard) unknown(key fleet.GroupKey, entry Entry) fleet.Group {
	why := "the record of this group is not in object storage, and nothing says that the group was deleted. No definition of it is known, " +
		"so its instances are left as they are: none is removed, replaced or added. Put the record back, create the group again, " +
		"with a template and a size, or delete it, which removes its instances"
	return fleet.Group{
		Key: key, Size: sizeOf(entry.Size), DrainTimeout: s.Server.DefaultDrainTimeout.Std(), Revision: entry.Revision,
		Disabled: why, RecordMissing: why,
	}
}

// recordMissing says what became of a group whose definition is known.
func recordMissing(isStatic bool) string {
	what, reset := "record", "writes the record again"
	if isStatic {
		what, reset = "override", "returns to the static definition"
	}
	return "the " + what + " of this group is not in object storage, or is older than what was known, and nothing says that it was to go. " +
		"The group is kept as it was known: no instance that works is removed or replaced. Resetting the group " + reset +
		", changing it writes it anew with the change, and deleting a group of its own removes its instances"
}

func (s *Shard) keys(d Dynamic) map[fleet.GroupKey]bool {
	keys := map[fleet.GroupKey]bool{}
	for tenant, groups := range s.Groups {
		for name := range groups {
			keys[fleet.GroupKey{Tenant: tenant, Name: name}] = true
		}
	}
	for tenant, groups := range d.Groups {
		for name := range groups {
			keys[fleet.GroupKey{Tenant: tenant, Name: name}] = true
		}
	}
	return keys
}

func checkKey(key fleet.GroupKey) error {
	if err := fleet.CheckName(key.Tenant); err != nil {
		return err
	}
	return fleet.CheckName(key.Name)
}

func below(path, field string) string {
	switch {
	case field == "":
		return path
	case field[0] == '[':
		return path + field
	}
	return path + "." + field
}

// resolve builds one group. wrong, with paths relative to the entry, is why it
// can't be acted on; ignored is what the entry has no say in.
func (s *Shard) resolve(key fleet.GroupKey, entry Entry) (group fleet.Group, wrong, ignored Problems) {
	static, isStatic := s.Static(key)
	switch {
	case isStatic:
		ignored = s.restricted(static, entry)
		group, wrong = s.build(key, static, entry)
		group.Static, group.StaticSize = true, sizeOf(static.Size, s.Templates[static.Template].Size)
		if entry.Missing {
			group.RecordMissing = recordMissing(true)
		}
	case entry.Removed:
		// What is wrong with the definition must not keep it from going.
		group, _ = s.build(key, entry.definition(), entry)
		group.Removed, group.Size, group.Leaving = true, 0, nil
	case entry.Undefined:
		group = s.unknown(key, entry)
	default:
		definition := entry.definition()
		group, wrong = s.build(key, definition, entry)
		if len(entry.unreadable) == 0 {
			wrong = append(wrong, s.checkOwn(key, definition)...)
		}
		if entry.Missing {
			group.RecordMissing = recordMissing(false)
		}
	}
	return group, wrong.sorted(), append(ignored, foreign(entry.unknown)...)
}

// foreign names the fields that are kept but mean nothing here.
func foreign(unknown record.Unknown) Problems {
	var problems Problems
	for _, name := range unknown.Names() {
		problems.addf(join("", name), "ignored: unknown field, of a newer version or a mistake; it is kept")
	}
	return problems
}

// definition reads an entry as the definition of a group of its own.
func (e Entry) definition() Group {
	return Group{
		Template: value(e.Template), SubnetPool: value(e.SubnetPool),
		Args: e.Args, LoadBalancers: e.LoadBalancers, DrainTimeout: e.DrainTimeout,
	}
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// sizeOf is the first size that is given; 0: none is.
func sizeOf(layers ...*int) int {
	for _, size := range layers {
		if size != nil {
			return *size
		}
	}
	return 0
}

// build puts the layers together. g is the definition, entry what overrides it.
func (s *Shard) build(key fleet.GroupKey, g Group, entry Entry) (fleet.Group, Problems) {
	template := s.Templates[g.Template]
	out := fleet.Group{
		Key: key, Template: g.Template, Kind: template.Kind, Arch: template.Arch,
		InstanceType:  cmp.Or(value(entry.InstanceType), g.InstanceType, template.InstanceType),
		SubnetPool:    cmp.Or(g.SubnetPool, template.SubnetPool),
		Args:          Merge(s.Defaults.Args, template.Args, g.Args),
		Vars:          Merge(s.Defaults.Vars, template.Vars, g.Vars, entry.Vars),
		Files:         copyFiles(template.Files),
		LoadBalancers: slices.Clone(g.LoadBalancers),
		DrainTimeout:  s.Server.DefaultDrainTimeout.Std(),
		Leaving:       slices.Clone(entry.Leaving),
		Revision:      entry.Revision,
	}
	out.Subnets = slices.Clone(s.Server.SubnetPools[out.SubnetPool])
	if g.DrainTimeout != nil {
		out.DrainTimeout = g.DrainTimeout.Std()
	}
	for _, rotation := range []*Rotation{entry.Rotation, g.Rotation, template.Rotation} {
		if rotation != nil {
			out.MaxSurge = rotation.MaxSurge
			break
		}
	}
	for _, userdata := range []*fleet.Userdata{template.Userdata, s.Defaults.Userdata} {
		if userdata != nil {
			out.Userdata = *userdata
			break
		}
	}
	out.Size = sizeOf(entry.Size, g.Size, template.Size)
	wrong := slices.Clone(entry.unreadable)
	if len(out.Vars) > maxVars {
		wrong.addf("vars", "%d vars after merging: at most %d are allowed", len(out.Vars), maxVars)
	}
	if out.InstanceType == "" && s.Server.Provider.Kind == ProviderAWS {
		wrong.addf("instance_type", "required with the provider aws, since the template names none")
	}
	hashes, err := s.Hashes(out)
	if err != nil {
		wrong.addf("", "hash the definition: %v", err)
	}
	out.Hashes = hashes
	return out, wrong
}

// checkOwn checks the definition of a group that static config does not name.
func (s *Shard) checkOwn(key fleet.GroupKey, g Group) Problems {
	v := &validator{shard: s}
	if !s.HasTenant(key.Tenant) {
		v.addf("", "no such tenant %q %s", key.Tenant, have(s.allTenants()))
	}
	v.args("args", g.Args)
	for i, lb := range g.LoadBalancers {
		refer(&v.findings, at("load_balancers", i), "load balancer", lb, "load_balancers", s.LoadBalancers)
	}
	if g.Template == "" {
		v.addf("template", "required, since static config names no such group %s", have(s.Templates))
		return v.problems
	}
	if template, ok := refer(&v.findings, "template", "template", g.Template, "templates", s.Templates); ok {
		v.ownSubnetPool(g, template)
	}
	return v.problems
}

// ownSubnetPool checks that the API may put a group into its subnet pool.
func (v *validator) ownSubnetPool(g Group, t Template) {
	allowed := v.shard.dynamicSubnetPools()
	pool := cmp.Or(g.SubnetPool, t.SubnetPool)
	if pool == "" {
		v.addf("subnet_pool", "required, since the template %q names none %s", g.Template, have(allowed))
		return
	}
	if _, exists := v.shard.Server.SubnetPools[pool]; exists && !allowed[pool] {
		v.addf("subnet_pool", "the subnet pool %q is not for dynamic groups %s", pool, have(allowed))
		return
	}
	refer(&v.findings, "subnet_pool", "subnet pool", pool, "server.subnet_pools", allowed)
}

// dynamicSubnetPools are the pools that groups from the API may use.
func (s *Shard) dynamicSubnetPools() map[string]bool {
	pools := map[string]bool{}
	for _, name := range s.Server.DynamicSubnetPools {
		pools[name] = true
	}
	if len(pools) == 0 {
		for name := range s.Server.SubnetPools {
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
