package reconcile

import (
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

// believeNotFound is for how long after a create a provider that does not show
// the VM may only be slow to show it.
const believeNotFound = time.Minute

// view gathers everything that a decision about one group depends on, and
// whether the group is defined.
//
// The lock is held throughout: a worker takes its instance out of launching, or
// ends its being busy, only after the ledger shows what it did, so an instance
// can be seen twice here but never missed.
func (l *Loop) view(key fleet.GroupKey, now time.Time) (plan.View, bool) {
	g, defined := l.cfg.Groups.Group(key)
	g.Key = key
	g.Size = max(0, g.Size-l.filled(key))
	records := l.cfg.Ledger.Group(key)
	v := plan.View{
		Now: now, Group: g, Settings: l.cfg.Groups.Settings(),
		Instances: make([]plan.Instance, 0, len(records)+len(l.launching)),
		Takeover:  l.takeover, CreateNotBefore: l.createNotBefore(g),
	}
	recorded := make(map[fleet.InstanceID]bool, len(l.launching))
	for _, r := range records {
		if l.launching[r.ID] != nil {
			recorded[r.ID] = true
		}
		v.Instances = append(v.Instances, l.instance(r, now))
	}
	for id, x := range l.launching {
		if x.group.Key == key && !recorded[id] {
			v.Instances = append(v.Instances, plan.Instance{Instance: x.record, Busy: true})
		}
	}
	byID := func(a, b plan.Instance) int { return strings.Compare(string(a.ID), string(b.ID)) }
	if !slices.IsSortedFunc(v.Instances, byID) {
		slices.SortFunc(v.Instances, byID)
	}
	return v, defined
}

// instance joins a record with what is known beyond it.
func (l *Loop) instance(r fleet.Instance, now time.Time) plan.Instance {
	i := plan.Instance{Instance: r}
	// A record that an idempotency key names is wanted whenever it lands: to bury it
	// would make the key name a dead instance before anybody was answered. Nobody has
	// acted on it, and its id makes no second one.
	i.Stray = r.Phase == fleet.Pending && r.RequestKey == "" && r.Epoch < l.cfg.Fence.Epoch() && !l.resumable[r.ID]
	if t := l.tracks[r.ID]; t != nil {
		i.VM, i.Health, i.RetryAt, i.Busy = t.vm, t.health, t.retryAt, t.isBusy(now)
	}
	return i
}

// sight is one answer about an instance's VM.
type sight struct {
	vm    provider.VM
	found bool
	asked time.Time // when the question was sent
}

// observe takes over the provider's word about an instance, unless a newer one
// is known. It reports whether that changed anything. l.mu is held.
func (l *Loop) observe(r fleet.Instance, s sight, now time.Time) bool {
	t := l.track(r.ID)
	word, state := plan.VMGone, provider.StateDeleted
	switch {
	case s.found:
		word, state = wordOf(s.vm.State), s.vm.State
	case !t.seen && now.Before(l.attempted(r, t).Add(believeNotFound)):
		word, state = plan.VMUnknown, provider.StateUnknown
	}
	t.seen = t.seen || s.found
	if s.asked.Before(t.asOf) {
		return false
	}
	t.asOf = s.asked
	if len(s.vm.Addresses) > 0 {
		t.addresses = s.vm.Addresses
	}
	if dead(word) {
		t.lose(signProvider, now, r)
		if t.loss != nil && t.loss.statusAt.IsZero() {
			t.loss.statusAt = now
		}
	}
	if word == plan.VMAlive && !t.doubtful() && t.health.Notice == nil {
		t.loss = nil
	}
	changed := t.vm != word || t.state != state
	if t.vm != word {
		l.mark(r.GroupKey())
	}
	t.vm, t.state = word, state
	return changed
}

// attempted is when the provider was last asked to create the instance.
func (l *Loop) attempted(r fleet.Instance, t *track) time.Time {
	at := t.attemptedAt
	if r.OnDemand && !attempted(r) {
		return at
	}
	if r.Provider.CreateAttemptedAt != nil && r.Provider.CreateAttemptedAt.After(at) {
		at = *r.Provider.CreateAttemptedAt
	}
	return at
}

func wordOf(s provider.State) plan.VM {
	switch {
	case !s.Exists():
		return plan.VMGone
	case s.Alive():
		return plan.VMAlive
	default:
		return plan.VMDown
	}
}

func dead(v plan.VM) bool { return v == plan.VMDown || v == plan.VMGone }
