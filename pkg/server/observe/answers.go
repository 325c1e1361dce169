package observe

import (
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/plan"
)

// Answer is the provider's answer about the VM of an instance.
type Answer struct {
	Record fleet.Instance
	VM     provider.VM
	Found  bool
	Asked  time.Time // when the call was sent
	Err    error     // the call failed
	// Unlisted means that the VM was polled because a list did not show it.
	Unlisted bool
}

// See applies answers atomically, so that no decision sees a part of a list. An answer that is
// older than the last one is ignored; one with an error only says that the state is unknown.
// It returns news of the instances whose VM's state has changed.
func (s *State) See(now time.Time, answers ...Answer) (news []News) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range answers {
		a := &answers[n]
		i := s.instance(a.Record.ID)
		vm, state := i.vm, i.state
		if a.Err != nil {
			i.leaveOpen(a)
		} else {
			was := i.naming()
			i.see(a, s, now)
			s.rename(a.Record.ID, was, i.naming())
		}
		if i.absent() {
			s.absent[a.Record.ID] = true
		} else {
			delete(s.absent, a.Record.ID)
		}
		if i.vm != vm || i.state != state {
			news = append(news, News{Record: a.Record, Pass: passFor(vm, i.vm), Changed: true})
		}
	}
	return news
}

// passFor returns how soon a change of a VM's state needs a pass.
func passFor(from, to plan.VM) Urgency {
	switch {
	case from == to:
		return Nothing
	case from == plan.VMUnknown && to == plan.VMAlive:
		return Unhurried
	default:
		return Urgent
	}
}

func (i *instance) see(a *Answer, s *State, now time.Time) {
	i.shown = i.shown || a.Found
	if a.Asked.Before(i.asOf) {
		return
	}
	i.asOf, i.unanswered, i.unlisted = a.Asked, false, false
	i.hear(a.VM)
	vm := vmOf(a.VM.State)
	switch {
	case !a.Found:
		i.miss(a, s)
	case i.ended && !s.consistent && !vm.Dead(): // stale
	default:
		i.vm, i.state, i.ended = vm, a.VM.State, vm.Dead()
		i.missedAt, i.misses, i.askAt = time.Time{}, 0, time.Time{}
	}
	i.updateLoss(a.Record, now)
}

// hear stores the provider's reason for a VM's state, and the VM's names and addresses. An empty
// reason does not overwrite that of a VM's end. An answer without names, such as for a VM that
// ended, does not clear them.
func (i *instance) hear(vm provider.VM) {
	if why := vm.Why(); why != "" || !i.vm.Dead() {
		i.why = why
	}
	if len(vm.Addresses) > 0 {
		i.addresses = vm.Addresses
	}
	if len(vm.DNSNames) > 0 {
		i.names = vm.DNSNames
	}
}

// miss applies an answer that did not find the VM.
func (i *instance) miss(a *Answer, s *State) {
	f := census.Missed(a.Record, census.Search{
		Consistent: s.consistent, Shown: i.shown, Attempted: i.mayHaveAsked(a.Record, s.began), MissedAt: i.missedAt,
	}, a.Asked)
	if i.missedAt, i.askAt = f.MissedAt, f.AskAt; !f.MissedAt.IsZero() {
		i.misses++
	}
	if f.Gone {
		i.vm, i.state = plan.VMGone, provider.StateDeleted
	}
}

// leaveOpen records that a poll caused by a list failed.
func (i *instance) leaveOpen(a *Answer) {
	if !a.Asked.Before(i.asOf) {
		i.unanswered, i.unlisted = true, a.Unlisted
	}
}

// absent reports whether the VM was not found, or not listed while polling it failed, and no
// dead state was ever seen.
func (i *instance) absent() bool { return (i.unlisted || !i.missedAt.IsZero()) && !i.ended }

// doubtful reports whether the VM has to be polled: the agent is not connected or is shutting
// down, or the VM is absent or its state unknown.
func (i *instance) doubtful() bool {
	return !i.health.Connected || !i.health.ShuttingDownAt.IsZero() || i.unanswered || i.absent()
}

// PollFirst reports whether a VM is polled just before it is deleted: its create may still be in
// progress, and reads are consistent. If the poll shows the VM, a later not-found is trusted at
// once, otherwise only after census.BelieveNotFound.
func (s *State) PollFirst(r fleet.Instance, now time.Time) (poll bool) {
	s.with(r.ID, func(i *instance) {
		sure := i.mayHaveAsked(r, s.began).Add(census.BelieveNotFound)
		poll = r.Provider.ID == "" && !i.shown && s.consistent && now.Before(sure)
	})
	return poll
}

func vmOf(s provider.State) plan.VM {
	switch {
	case !s.Exists():
		return plan.VMGone
	case s.Alive():
		return plan.VMAlive
	default:
		return plan.VMDown
	}
}
