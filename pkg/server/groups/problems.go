package groups

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/problems"
)

// Problems keeps the problems of invalid and missing records of groups up to date.
type Problems struct{ groups *Groups }

// Reports returns what reports the problems of the groups' records.
func Reports(g *Groups) Problems { return Problems{g} }

// invalid lists what is wrong with records of groups.
func (p Problems) invalid() (all config.Problems) {
	for key, err := range p.groups.records.ForeignGroups() {
		all = append(all, config.Problem{Path: key, Message: err.Error()})
	}
	p.groups.mu.RLock()
	defer p.groups.mu.RUnlock()
	for _, problems := range p.groups.problems {
		all = append(all, problems...)
	}
	slices.SortFunc(all, func(a, b config.Problem) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return all
}

// ReportAll reports the invalid and the missing records of all groups.
func (p Problems) ReportAll() {
	for _, key := range p.groups.All() {
		p.reportMissing(key)
	}
	for _, x := range p.invalid() {
		p.report(ReasonInvalid, groupIn(x.Path), x.String())
	}
}

// reportOne does so for one group.
func (p Problems) reportOne(key fleet.GroupKey) {
	p.groups.mu.RLock()
	problems := p.groups.problems[key]
	p.groups.mu.RUnlock()
	for _, x := range problems {
		p.report(ReasonInvalid, key, x.String())
	}
	p.reportMissing(key)
}

// reportMissing reports a missing record. One that is still to be read by its key may be there.
func (p Problems) reportMissing(key fleet.GroupKey) {
	if group, _ := p.groups.Group(key); p.groups.missing(key) && !toBeRead(p.groups, key) {
		p.report(ReasonRecordMissing, key, group.RecordMissing)
	}
}

// ReportNewlyMissing reports the missing records that were not reported yet.
func (p Problems) ReportNewlyMissing() {
	for _, key := range p.groups.All() {
		p.reportNewlyMissing(key)
	}
}

func (p Problems) reportNewlyMissing(key fleet.GroupKey) {
	if _, known := p.groups.cfg.Problems.Get(problems.Subject{Group: key, Reason: ReasonRecordMissing}); !known {
		p.reportMissing(key)
	}
}

func (p Problems) report(reason string, key fleet.GroupKey, message string) {
	p.groups.cfg.Problems.Set(fleet.Problem{At: p.groups.cfg.Now(), Reason: reason, Message: message, Group: key, Lasts: true})
}

// ClearReturned ends the problems of records that are not missing any more.
func (p Problems) ClearReturned() {
	for _, key := range p.groups.cfg.Problems.Groups() {
		if _, known := p.groups.cfg.Problems.Get(problems.Subject{Group: key, Reason: ReasonRecordMissing}); known && !p.groups.missing(key) {
			p.groups.cfg.Problems.Clear(key, "", ReasonRecordMissing)
		}
	}
}

// ClearMended ends the problems of invalid records that are valid now.
func (p Problems) ClearMended() {
	wrong := map[fleet.GroupKey]bool{}
	for _, x := range p.invalid() {
		wrong[groupIn(x.Path)] = true
	}
	p.groups.cfg.Problems.ClearAll(func(x problems.Subject) bool { return x.Reason == ReasonInvalid && !wrong[x.Group] })
}

// ClearMendedOf does so for one group.
func (p Problems) ClearMendedOf(key fleet.GroupKey) {
	if !p.groups.wrong(key) {
		p.groups.cfg.Problems.ClearGroup(key, func(x problems.Subject) bool { return x.Reason == ReasonInvalid })
	}
}

// groupIn returns the group that a field belongs to, such as groups.prod.web.size; zero if it
// belongs to none.
func groupIn(path string) fleet.GroupKey {
	parts := strings.SplitN(path, ".", 4)
	if len(parts) < 3 || parts[0] != "groups" || fleet.CheckName(parts[1]) != nil || fleet.CheckName(parts[2]) != nil {
		return fleet.GroupKey{}
	}
	return fleet.GroupKey{Tenant: parts[1], Name: parts[2]}
}
