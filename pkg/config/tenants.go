package config

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
)

// Tenants are the tenants that may use something of the config. Nil means only the tenant
// default, so that nothing is shared by accident; ["*"] means all.
type Tenants []string

// everyTenant, as the only item of a list, means all tenants.
const everyTenant = "*"

// Allow reports whether the tenant is included.
func (t Tenants) Allow(tenant string) bool {
	if t == nil {
		return tenant == fleet.DefaultTenant
	}
	return t.every() || slices.Contains(t, tenant)
}

func (t Tenants) all(is func(string) bool) bool {
	return !slices.ContainsFunc(t, func(tenant string) bool { return !is(tenant) })
}

func (t Tenants) every() bool { return len(t) == 1 && t[0] == everyTenant }

// Access is which tenants may use a secret, or the objects below a prefix of the bucket.
type Access struct {
	Tenants Tenants `json:"tenants,omitempty"`
}

// SubnetPool is a list of the provider's subnets. It is written as a plain list, or as an
// object if tenants other than default may use it.
type SubnetPool struct {
	Subnets []string `json:"subnets"`
	Tenants Tenants  `json:"tenants,omitempty"`
}

// MarshalJSON returns what Parse reads, as a plain list if that suffices.
func (p SubnetPool) MarshalJSON() ([]byte, error) {
	if p.Tenants == nil {
		return json.Marshal(p.Subnets)
	}
	type fields SubnetPool
	return json.Marshal(fields(p))
}

// secret returns the tenants that may use a secret, and the config path of the entry: that of
// its name, or else the longest pattern that matches, or the path where an entry would be.
func (a access) secret(name string) (path string, who Tenants) {
	if found, ok := a.shard.Secrets[name]; ok {
		return join("secrets", name), found.Tenants
	}
	for n := len(name); n >= 0; n-- {
		pattern := name[:n] + "*"
		if found, ok := a.shard.Secrets[pattern]; ok {
			return join("secrets", pattern), found.Tenants
		}
	}
	return join("secrets", name), nil
}

// storage does for an object below files/ what secret does for secrets: it returns the entry
// of its key, or else of the deepest folder that contains it.
func (a access) storage(key string) (path string, who Tenants) {
	if found, ok := a.shard.Files[key]; ok {
		return join("files", key), found.Tenants
	}
	for folder := key; folder != ""; {
		folder = folder[:strings.LastIndexByte(strings.TrimSuffix(folder, "/"), '/')+1]
		if found, ok := a.shard.Files[folder]; ok {
			return join("files", folder), found.Tenants
		}
	}
	return join("files", key), nil
}

// CheckFile returns an error if a tenant may not have a file, because the tenant may not use
// its secret, stored object or certificate. The error, of type Problems, names the field and
// the config path that would have to list the tenant.
func (s *Shard) CheckFile(tenant string, f fleet.File) error {
	var found findings
	access{findings: &found, shard: s, toOwn: true, granted: s.excused}.file("", f, Tenants{tenant})
	return found.problems.Err()
}

// defaultsFor returns the lowest layer of a tenant's groups.
func (s *Shard) defaultsFor(tenant string) Defaults {
	unsaid := s.excused != nil && s.excused.defaults
	if !unsaid && !s.Defaults.Tenants.Allow(tenant) {
		return Defaults{}
	}
	return s.Defaults
}

// usableBy returns the entries of a section that a tenant may use.
func usableBy[V any](tenant string, section map[string]V, who func(V) Tenants) map[string]V {
	usable := map[string]V{}
	for name, entry := range section {
		if who(entry).Allow(tenant) {
			usable[name] = entry
		}
	}
	return usable
}

func (t Template) who() Tenants     { return t.Tenants }
func (l LoadBalancer) who() Tenants { return l.Tenants }
func (i Image) who() Tenants        { return i.Tenants }
func (p SubnetPool) who() Tenants   { return p.Tenants }
func (c Certificate) who() Tenants  { return c.Tenants }
