package leader

import (
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/plan"
)

// This file is about groups whose record, or override, went without a sign that it was to
// go: the object was removed or edited by hand, or an older one was put back. Such a group
// is held as it was known, which the next write of the tenant's object makes durable.

// ReasonRecordMissing is the reason of the problem of such a group.
const ReasonRecordMissing = "GroupRecordMissing"

// holding knows which of a term's groups are held.
type holding struct {
	groups  *groups
	records records
}

// hold judges a tenant's object as it was read, and returns the entries with which to go
// on, and the highest rev that is known of it. The store lacks what they differ in.
func (x holding) hold(
	t *tenant, stored *config.Entries, o ledger.GroupsObject, living living,
) (held *config.Entries, rev uint64, err error) {
	h := config.Held{Tenant: t.name, Absent: o.ETag == "", Known: t.entries, Certain: true, Living: living[t.name]}
	if h.Known == nil {
		h.Certain = false
		if known, err := config.ParseEntries(o.Prior); err == nil && len(o.Prior) > 0 {
			h.Known = known
		}
	}
	if h.Known != nil {
		rev = h.Known.Header().Rev
	} else if h.Absent {
		h.Beyond = x.beyond(t.name, h.Living)
	}
	held, err = x.groups.static.Hold(stored, h)
	return held, rev, err
}

// beyond is how many instances of groups of a tenant may be beyond the size that the static
// config gives them, because others are replaced.
func (x holding) beyond(tenant string, living map[string]int) map[string]int {
	beyond, settings := map[string]int{}, x.groups.Settings()
	static, _ := x.groups.static.Resolve(config.Dynamic{})
	for name := range living {
		if group, isStatic := static[fleet.GroupKey{Tenant: tenant, Name: name}]; isStatic {
			beyond[name] = plan.Beyond(x.records.Group(group.Key), group, settings, x.groups.cfg.Now())
		}
	}
	return beyond
}

// living counts managed instances that live, by tenant and group. A group with none but
// on-demand instances has 0 of them.
type living map[string]map[string]int

// living counts those of the records. One for which no machine was asked for yet shows of
// no group that it was there.
func (r records) living() living {
	living := living{}
	for _, i := range r.Instances() {
		if !i.Phase.Active() || i.Phase == fleet.Pending && i.Provider.ID == "" && i.Provider.CreateAttemptedAt == nil {
			continue
		}
		of := living[i.Tenant]
		if of == nil {
			of = map[string]int{}
			living[i.Tenant] = of
		}
		n := 0
		if !i.OnDemand {
			n = 1
		}
		of[i.Group] += n
	}
	return living
}

// missing reports whether a group is held because its record is missing.
func (x holding) missing(key fleet.GroupKey) bool {
	group, desired := x.groups.Group(key)
	return group.RecordMissing != "" && (desired || x.records.lives(key))
}

// lives reports whether a group has instances.
func (r records) lives(key fleet.GroupKey) bool {
	for _, i := range r.Group(key) {
		if i.Phase != fleet.Deleted {
			return true
		}
	}
	return false
}

// problems are those of the groups whose record is missing that are to be told.
func (x holding) problems(now time.Time, which func(fleet.GroupKey) bool) (all []fleet.Problem) {
	for _, key := range x.groups.All() {
		if x.missing(key) && which(key) {
			group, _ := x.groups.Group(key)
			all = append(all, fleet.Problem{At: now, Reason: ReasonRecordMissing, Message: group.RecordMissing, Group: key})
		}
	}
	return all
}
