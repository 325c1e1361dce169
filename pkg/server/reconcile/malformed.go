package reconcile

import (
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// An object that can't be understood as a record still speaks of somebody's VM,
// so that VM is left alone: it is no stray, it holds up nothing, and nothing is
// done to it. As long as it lives it fills a place of the group that its tags
// name, so that no replacement is made for it and the rest of the group is run
// as usual. When an object does not even tell its instance, any stray may be its
// VM, and no stray is deleted.

// ReasonMalformed is the reason of a problem with such an object. Each is
// reported once.
const ReasonMalformed = "RecordMalformed"

// spoken is what the malformed objects speak of.
type spoken struct {
	ids      map[fleet.InstanceID]bool
	nameless bool // there is one that does not tell its instance
}

func (l *Loop) spokenFor() spoken {
	s := spoken{ids: map[fleet.InstanceID]bool{}}
	for _, m := range l.cfg.Ledger.Malformed() {
		if m.ID == "" {
			s.nameless = true
		} else {
			s.ids[m.ID] = true
		}
	}
	return s
}

// spare remembers the VMs that only a malformed object speaks of, and has their
// groups decided anew when that changed. l.mu is held.
func (l *Loop) spare(vms []provider.VM) {
	spared := make(map[fleet.InstanceID]fleet.GroupKey, len(vms))
	for _, vm := range vms {
		if vm.State.Alive() {
			spared[vm.ID] = groupOfTags(vm)
		}
	}
	for id, key := range spared {
		if l.spared[id] != key {
			l.mark(key)
		}
	}
	for id, key := range l.spared {
		if spared[id] != key {
			l.mark(key)
		}
	}
	l.spared = spared
}

// filled is how many places of a group spared VMs fill. One whose record can be
// read again fills none of them. l.mu is held.
func (l *Loop) filled(key fleet.GroupKey) int {
	n := 0
	for id, of := range l.spared {
		if of == key {
			if _, ok := l.cfg.Ledger.Get(id); !ok {
				n++
			}
		}
	}
	return n
}

// tellMalformed reports every malformed object that was not reported yet.
func (l *Loop) tellMalformed() {
	told := map[string]bool{}
	var problems []*fleet.Problem
	l.mu.Lock()
	for _, m := range l.cfg.Ledger.Malformed() {
		told[m.Key] = true
		if !l.told[m.Key] {
			problems = append(problems, m.problem())
		}
	}
	l.told = told
	l.mu.Unlock()
	for _, p := range problems {
		l.tell(p)
	}
}

func (m Malformed) problem() *fleet.Problem {
	whose := "whatever VM it speaks of is left alone, and no VM without a record is deleted"
	if m.ID != "" {
		whose = fmt.Sprintf("it and the VM of instance %s are left alone", m.ID)
	}
	return &fleet.Problem{
		Reason: ReasonMalformed, Instance: m.ID,
		Message: fmt.Sprintf("the object %.300q can't be understood as the record of an instance: %v; %s until the object is restored or removed", m.Key, m.Err, whose),
	}
}
