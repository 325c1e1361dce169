package config

import (
	"cmp"
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
)

// Tenant is a tenant's settings.
type Tenant struct {
	Quota Quota `json:"quota,omitzero"`
}

// Quota bounds a tenant's resources and calls. A nil field means no limit; only the tenant
// default has such fields, unless the config sets them.
type Quota struct {
	Groups         *int `json:"groups,omitempty"`           // including those of the config, without those being deleted
	Instances      *int `json:"instances,omitempty"`        // sum of the groups' sizes, plus leaving instances when more are requested
	OnDemand       *int `json:"on_demand,omitempty"`        // concurrent on-demand instances
	ConfigBytes    *int `json:"config_bytes,omitempty"`     // of the records of changes through the API
	CallsPerSecond *int `json:"calls_per_second,omitempty"` // of all its operators together
	ReadsPerSecond *int `json:"reads_per_second,omitempty"` // from object storage, for its calls
}

// MaxOnDemand is the maximum number of on-demand instances of any tenant, the same as a group's
// maximum size.
const MaxOnDemand = MaxGroupSize

// quotaField is one field of a quota, with its limits and its default for tenants other than
// default.
type quotaField struct {
	name             string
	value            **int
	def, least, most int
}

func (q *Quota) fields() []quotaField {
	return []quotaField{
		{"groups", &q.Groups, 100, 0, 10_000},
		{"instances", &q.Instances, 1000, 0, 1_000_000},
		{"on_demand", &q.OnDemand, 100, 0, MaxOnDemand},
		{"config_bytes", &q.ConfigBytes, 1 << 20, 0, MaxSize},
		{"calls_per_second", &q.CallsPerSecond, 200, 1, 10_000},
		{"reads_per_second", &q.ReadsPerSecond, 20, 1, 10_000},
	}
}

// completed returns q with a tenant's defaults.
func (q Quota) completed(tenant string) Quota {
	for _, f := range q.fields() {
		if *f.value == nil && tenant != fleet.DefaultTenant {
			*f.value = &f.def
		}
	}
	return q
}

// QuotaOf returns a tenant's quota, also for a tenant that the config no longer declares.
func (s *Shard) QuotaOf(tenant string) Quota { return s.Tenants[tenant].Quota.completed(tenant) }

// QuotaError says that a tenant would exceed its quota.
type QuotaError struct {
	Tenant                 string
	Field                  string // of the quota, such as groups
	Limit, Current, Wanted int
	Living                 Living
}

// Living counts a tenant's live instances.
type Living struct {
	All     int
	Leaving int // those being removed
}

func (e *QuotaError) Error() string {
	until := ""
	if n := e.Living.Leaving; n > 0 && e.Wanted-n <= e.Limit {
		until = fmt.Sprintf(" (live instances: %d, of which leaving: %d; they count until they are gone: wait for that, or acknowledge "+
			"their drains)", e.Living.All, n)
	}
	return fmt.Sprintf("the quota of tenant %q is exceeded: %s: at most %d are allowed, there are %d, and with this %d%s "+
		"(the limit is %s.quota.%[2]s of the shard's config)", e.Tenant, e.Field, e.Limit, e.Current, e.Wanted, until, join("tenants", e.Tenant))
}

// CheckLimit returns an error for growth beyond a limit; nil means no limit. A value beyond
// the limit may shrink or stay: lowering a limit takes nothing away. current and wanted
// include leaving instances.
func CheckLimit(tenant, field string, limit *int, current, wanted int, living Living) error {
	if limit == nil || wanted <= *limit || wanted <= current {
		return nil
	}
	return &QuotaError{Tenant: tenant, Field: field, Limit: *limit, Current: current, Wanted: wanted, Living: living}
}

func (e Entry) withoutSize() Entry {
	e.RolloutPaused, e.Manager, e.Replaced, e.Aborted = false, "", nil, nil
	e.Size, e.SizeKept, e.Leaving, e.Removed, e.Missing, e.Undefined, e.Revision = nil, false, nil, false, false, false, 0
	return e
}

// sizeWith returns a group's size by its static definition, if any, and its entry.
func (s *Shard) sizeWith(static Group, entry Entry) int {
	if static.Template == "" {
		if entry.Removed {
			return 0
		}
		static.Template = value(entry.Template)
	}
	size, _ := sizeOf(s.Templates, static, entry)
	return size
}

// sizeBy returns the size that a config gives a group with a record, without an override. It returns 0
// and false if the config does not define the group's template.
func (r GroupRecord) sizeBy(s *Shard, key fleet.GroupKey) (size int, known bool) {
	static, isStatic := s.Static(key)
	if !isStatic {
		static = Group{Template: value(r.Template)}
	}
	_, known = s.Templates[static.Template]
	size, _ = sizeOf(s.Templates, static, Entry{})
	return size, known
}

// defaultSize is the size of a group for which neither its definition nor its template sets one.
const defaultSize = 1

// sizeOf returns a group's size, and whether anything sets it. A group whose template is unknown
// has no default.
func sizeOf(templates map[string]Template, g Group, entry Entry) (size int, isSet bool) {
	template, known := templates[g.Template]
	if says := cmp.Or(entry.Size, g.Size, template.Size); says != nil || !known {
		return value(says), says != nil
	}
	return defaultSize, false
}
