package shardtest

import (
	"bytes"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// weighs is how long after a takeover without faults a config that takes away nothing that ever
// had a machine has taken effect: a sweep, and the leader's next look at config/.
const weighs = 7 * time.Minute

// doWeigh ends the faults of the store, the network and the provider, makes another server take
// over, and checks what it does with the config and with groups whose record is missing.
func doWeigh(s *Shard, _ args) error {
	s.fair()
	if err := s.bucket.restoreApplied(); err != nil {
		return err
	}
	if err := doCrash(s, args{words: []string{"leader"}}); err == nil {
		s.revive()
	}
	time.Sleep(weighs)
	s.operator.idle()
	groups, err := s.operator.groups(patience)
	if err != nil {
		return nothing("no server leads: %v", err)
	}
	s.book.texts.weigh(groups)
	return nil
}

// fair ends the faults of everything but machines.
func (s *Shard) fair() {
	s.fairWeather()
	s.fairListings()
	s.fairProvider()
	s.network.HealAll()
	s.revive()
	time.Sleep(storeTimeout) // a request that a server dies after may be in progress
	s.revive()
}

// weigh judges a leader by the status of its groups.
func (t *texts) weigh(groups []*nstancev1.GroupStatus) {
	t.book.mu.Lock()
	defer t.book.mu.Unlock()
	told := map[fleet.GroupKey]bool{}
	for _, g := range groups {
		for _, c := range g.GetConditions() {
			if c.GetType() == recordMissing || c.GetType() == "Disabled" {
				told[fleet.GroupKey{Tenant: g.GetTenant(), Name: g.GetKey()}] = true
			}
		}
	}
	t.book.hands.judgeTold(told)
	t.judgeAwaiting()
}

// judgeTold checks that a leader tells of each group with instances whose record is missing, or
// says less than lives.
func (h *hands) judgeTold(told map[fleet.GroupKey]bool) {
	b := h.book
	for key, r := range b.groups {
		if _, byHand := h.left[key]; !byHand && r.Missing && b.healthy(key, anyInstance) > 0 && !told[key] {
			b.violate("group %s is held, and its leader does not tell", key)
		}
	}
	for key, r := range h.left {
		_, isStatic := b.applied.Static(key)
		if lacks := !r.Exists() || r.Removed; lacks && !isStatic && b.healthy(key, anyInstance) > 0 && !told[key] {
			b.violate("the record of group %s is missing, and its leader does not tell", key)
		}
	}
}

// judgeAwaiting checks that the config in the store runs, or that its leader tells that it awaits
// confirmation, which needs a group that had a machine.
func (t *texts) judgeAwaiting() {
	b, configs, accepted := t.book, t.configs, t.accepted
	if len(b.hands.left) > 0 || len(accepted) == 0 || bytes.Equal(configs[len(configs)-1], textOf(accepted[len(accepted)-1])) {
		return
	}
	next, err := config.Parse(configs[len(configs)-1])
	if err != nil {
		return
	}
	had := false
	for key := range t.taken(next) {
		had = had || b.groups[key].Exists() || t.had(key) // it may outlive its definition
	}
	leader := lifeOf(b.holder.Holder)
	switch {
	case !had:
		b.violate("the config takes away no group that ever had a machine, and is not in effect %s after a takeover", weighs)
	case !t.told[leader]:
		b.violate("the config awaits confirmation, and %s does not tell", leader)
	}
}

// had reports whether a group ever had a machine, in a record that is there or was. The caller holds the
// lock.
func (t *texts) had(key fleet.GroupKey) bool {
	for _, records := range []map[fleet.InstanceID]fleet.Instance{t.book.records, t.book.past} {
		for _, i := range records {
			if i.GroupKey() == key && (i.Provider.ID != "" || i.RegisteredAt != nil) {
				return true
			}
		}
	}
	return false
}

// taken returns the groups that the next config takes away, if they have instances, without listing them
// as removed.
func (t *texts) taken(next *config.Shard) map[fleet.GroupKey]bool {
	b, all := t.book, map[fleet.GroupKey]bool{}
	before, _ := b.applied.Resolve(b.groups)
	records, succession := config.GroupRecords{}, config.Succession{Next: next, Before: []*config.Shard{b.applied}}
	for key := range before {
		records[key] = succession.Record(key, b.groups[key]) // one that only counts instances ends with the config that defined it
	}
	after, _ := next.Resolve(records)
	for key, was := range before {
		is, stays := after[key]
		goes := !stays || is.Removed                                          // on-demand instances, too
		keeps := was.Disabled != "" || !was.Removed && (was.Size > 0 || goes) // what is disabled stays as it is
		if !keeps || confirmed(b.applied, next, key) {
			continue
		}
		if goes || is.Size == 0 || is.SizeUnset && !was.SizeUnset {
			all[key] = true
		}
	}
	return all
}
