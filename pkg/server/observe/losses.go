package observe

import (
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// Loss is how an instance was lost.
type Loss struct {
	Sign     string    // the first sign; empty: it was not lost
	At       time.Time // of the first sign
	StatusAt time.Time // when the provider confirmed it; zero: not yet
}

// loss is a Loss, and what became of its replacement.
type loss struct {
	how      Loss
	awaited  bool // the last pass decided on a replacement, which has not begun
	replaced bool // a replacement has begun
}

// The signs of a loss.
const (
	signDisconnect = "disconnect"
	signShutdown   = "shutdown"
	signNotice     = "notice"
	signProvider   = "provider"
)

// lose records the first sign of a loss. It is a no-op for instances that are leaving.
func (i *instance) lose(sign string, at time.Time, r fleet.Instance) {
	if i.loss == nil && r.Phase.Active() {
		i.loss = &loss{how: Loss{Sign: sign, At: at}}
	}
}

// updateLoss begins, confirms or ends a loss after an answer of the provider.
func (i *instance) updateLoss(r fleet.Instance, now time.Time) {
	if i.vm.Dead() {
		i.lose(signProvider, now, r)
		if i.loss != nil && i.loss.how.StatusAt.IsZero() {
			i.loss.how.StatusAt = now
		}
	}
	if i.vm == plan.VMAlive && !i.doubtful() && i.health.Notice == nil {
		i.loss = nil
	}
}

// unreplaced reports whether the instance may be lost, and no replacement has begun.
func (i *instance) unreplaced() bool { return i.loss != nil && !i.loss.replaced }

// lost reports whether the loss is certain, given the VM's state, and no replacement has begun.
func (i *instance) lost(shown plan.VM) bool {
	return i.unreplaced() &&
		(shown.Dead() || i.health.Notice != nil || !i.health.ShuttingDownAt.IsZero())
}

// awaitsReplacement reports whether the loss of an instance is certain and no replacement has
// begun. For a tombstone, only while its replacement is queued.
func (i *instance) awaitsReplacement(x *plan.Instance) bool {
	return i.lost(x.VM) && (x.Phase != fleet.Deleted || i.loss.awaited)
}

// immediate reports whether an instance had settled, is lost, and no replacement has begun. For
// a tombstone, only while its replacement is queued.
func (i *instance) immediate(x *plan.Instance, settings plan.Settings, now time.Time) bool {
	return !x.OnDemand && i.awaitsReplacement(x) && i.hasSettled(x.Instance, settings, now)
}

// Replace returns the lost instances of a decision that the given number of creates, those of one
// pass, replace: those that had settled first, then by the time of the loss. A tombstone is
// included only while its replacement is queued.
func (s *State) Replace(j Joined, creates int) (lost []*plan.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range j.Lost {
		if x, i := j.find(id), s.instances[id]; x != nil && i != nil && i.awaitsReplacement(x) {
			lost = append(lost, x)
		}
	}
	slices.SortStableFunc(lost, func(a, b *plan.Instance) int {
		if a.Immediate != b.Immediate {
			if a.Immediate {
				return -1
			}
			return 1
		}
		return s.instances[a.ID].loss.how.At.Compare(s.instances[b.ID].loss.how.At)
	})
	for n, x := range lost {
		s.instances[x.ID].loss.awaited = n < creates
	}
	return lost[:min(creates, len(lost))]
}
