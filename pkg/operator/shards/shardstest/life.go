package shardstest

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Short names of the phases.
const (
	pending  = nstancev1.InstancePhase_INSTANCE_PHASE_PENDING
	running  = nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
	draining = nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING
	deleting = nstancev1.InstancePhase_INSTANCE_PHASE_DELETING
	deleted  = nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
)

// group is one of a shard's groups.
type group struct {
	definition
	name       string
	static     bool
	staticSize int32
	removed    bool
	leaving    []string // named for removal, and not deleted yet
	conditions map[string]*nstancev1.Condition
	revision   uint64 // of the definition
	version    uint64 // of the last change
}

type instance struct {
	*nstancev1.InstanceStatus
	version uint64
	due     time.Time // when its next phase begins; zero: not scheduled
	replace string    // why it is removed once a replacement runs; empty: it is not
	built   string    // infra of its definition
}

func (i *instance) active() bool { return i.Phase == pending || i.Phase == running }

// converge runs all due steps and notifies the streams. It is called after each change.
func (s *state) converge() {
	for again := true; again; {
		now := time.Now()
		again = false
		of := map[string][]*instance{}
		for _, i := range s.byAge() {
			again = s.age(i, now) || again
			of[i.Group] = append(of[i.Group], i)
		}
		for _, g := range s.groups {
			again = s.step(g, of[g.name], now) || again
		}
	}
	s.wind()
	s.changed.send()
}

// wind sets the timer for the next scheduled step.
func (s *state) wind() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	var next time.Time
	for _, i := range s.instances {
		if !i.due.IsZero() && (next.IsZero() || i.due.Before(next)) {
			next = i.due
		}
	}
	if !next.IsZero() && !s.ended {
		s.timer = time.AfterFunc(time.Until(next), func() { s.change(func(time.Time) {}) })
	}
}

// age moves an instance to its next phase, if that is due.
func (s *state) age(i *instance, now time.Time) bool {
	if i.Phase == pending && i.ProviderId == "" {
		if moved, waits := s.admit(i, now); moved || waits {
			return moved
		}
	}
	if i.due.IsZero() || i.due.After(now) {
		return false
	}
	switch {
	case i.Phase == pending && i.ProviderId == "":
		i.ProviderId, i.NodeProviderId = i.Id, "process:///"+i.Id
		i.ProviderState, i.Hostname, i.LastError, i.LastErrorAt = "running", i.Id, "", nil
		i.Ips = []string{address(i.Id)}
		i.due = now.Add(s.timing.Boot)
	case i.Phase == pending:
		i.Phase, i.due = running, time.Time{}
		i.RegisteredAt, i.LastReportAt, i.Connected = timestamppb.New(now), timestamppb.New(now), true
	case i.Phase == draining:
		s.expire(i, i.Reason, now)
		return true
	case i.Phase == deleting:
		s.bury(i, i.Reason, now)
		return true
	case i.Phase == deleted:
		delete(s.instances, i.Id)
		if r := s.requests[i.IdempotencyKey]; r != nil && r.id == i.Id {
			r.last = i.InstanceStatus
		}
	}
	s.touch(i)
	return true
}

// admit decides whether an instance gets a machine: moved, if that was refused for good; waits, if
// there is no capacity.
func (s *state) admit(i *instance, now time.Time) (moved, waits bool) {
	switch {
	case s.refuses != "" && i.OnDemand:
		s.refuse(i, s.refuses, now)
		return true, false
	case s.noRoom:
		i.due = time.Time{}
		return false, true
	case i.due.IsZero(): // there was no capacity
		i.due = now
	}
	return false, false
}

// address returns an instance's address, derived from the end of its ID.
func address(id string) string {
	n := 0
	for _, c := range id[len(id)-6:] {
		n = (n*31 + int(c)) % 65000
	}
	return fmt.Sprintf("10.1.%d.%d", n/254, n%254+1)
}

// expire starts the deletion of an instance.
func (s *state) expire(i *instance, reason string, now time.Time) {
	if s.timing.Delete == 0 || i.ProviderId == "" {
		s.bury(i, reason, now)
		return
	}
	i.Phase, i.Reason, i.Connected, i.due = deleting, reason, false, now.Add(s.timing.Delete)
	s.touch(i)
}

// bury turns an instance into a tombstone.
func (s *state) bury(i *instance, reason string, now time.Time) {
	i.Phase, i.Reason, i.Connected, i.DeletedAt = deleted, reason, false, timestamppb.New(now)
	i.due = now.Add(s.timing.Tombstone)
	if i.ProviderId != "" {
		i.ProviderState = "gone"
	}
	if g := s.groups[i.Group]; g != nil && slices.Contains(g.leaving, i.Id) {
		g.leaving = slices.DeleteFunc(g.leaving, func(id string) bool { return id == i.Id })
	}
	s.touch(i)
}

// leave removes an instance, with a drain if it has a node.
func (s *state) leave(i *instance, reason string, now time.Time) {
	if i.Phase == pending || s.timing.Drain == 0 {
		s.expire(i, reason, now)
		return
	}
	s.drain(i, reason, now, now.Add(s.timing.Drain))
}

func (s *state) drain(i *instance, reason string, now, at time.Time) {
	if i.Phase == draining {
		if at.After(i.GetDrain().GetDeleteAt().AsTime()) {
			return // a drain is never extended
		}
	} else if !i.active() {
		return
	}
	if at.Before(now) {
		at = now
	}
	i.Phase, i.Reason, i.due = draining, reason, at
	i.Drain = &nstancev1.DrainStatus{Reason: reason, DeleteAt: timestamppb.New(at), AckedAt: i.GetDrain().GetAckedAt()}
	s.touch(i)
}

// step makes one step towards a group's desired state, and reports whether there was one.
func (s *state) step(g *group, byAge []*instance, now time.Time) bool {
	m, stepped := s.sort(g, byAge, now)
	size := int(g.size)
	switch {
	case stepped:
		return true
	case g.removed && m.there == 0:
		delete(s.groups, g.name)
		s.version++
		s.left[g.name] = s.version
		return true
	case g.removed:
		return false
	case len(m.active) < size:
		for range size - len(m.active) {
			s.create(g, now)
		}
		return true
	case len(m.active) > size:
		s.leave(surplus(m.active), "scale-down", now)
		return true
	case len(m.marked) > 0 && m.up >= size:
		s.leave(m.marked[0], m.marked[0].replace, now)
		return true
	}
	return len(m.marked) == 0 && m.up == size && !g.rolloutPaused && s.rotate(g, m.active)
}

// members are a group's instances that count for its size.
type members struct {
	active, marked []*instance // by age; marked: removed once replacements run
	up             int         // active instances that run
	there          int         // instances not deleted yet
}

// sort classifies a group's instances, and removes those that must go in any case.
func (s *state) sort(g *group, byAge []*instance, now time.Time) (m members, left bool) {
	for _, i := range byAge {
		if i.Phase == deleted {
			continue
		}
		m.there++
		switch {
		case !i.active():
		case g.removed:
			s.leave(i, "group-removed", now)
			left = true
		case i.OnDemand:
		case slices.Contains(g.leaving, i.Id):
			s.leave(i, "asked-to-leave", now)
			left = true
		case i.replace != "":
			m.marked = append(m.marked, i)
		default:
			m.active = append(m.active, i)
			if i.Phase == running {
				m.up++
			}
		}
	}
	return m, left
}

// surplus returns the instance to remove first: one that is not running, or else the oldest.
func surplus(byAge []*instance) *instance {
	for _, i := range byAge {
		if i.Phase == pending {
			return i
		}
	}
	return byAge[0]
}

// rotate marks the oldest instance of an earlier definition for replacement.
func (s *state) rotate(g *group, active []*instance) bool {
	for _, i := range active {
		if i.built != g.infra() {
			i.replace = "infra-drift"
			s.touch(i)
			return true
		}
	}
	return false
}

// create creates an instance of a group.
func (s *state) create(g *group, now time.Time) *instance {
	// IDs carry milliseconds: each is made later than the last, so that they sort by age.
	if now = now.Truncate(time.Millisecond); !now.After(s.lastID) {
		now = s.lastID.Add(time.Millisecond)
	}
	s.lastID = now
	id, err := fleet.NewID("knd", now, rand.Reader)
	if err != nil {
		s.tb.Errorf("make an id: %v", err)
	}
	i := &instance{built: g.infra(), due: time.Now().Add(s.timing.Create), InstanceStatus: &nstancev1.InstanceStatus{
		Id: string(id), Tenant: tenant, Group: g.name, Phase: pending, InstanceType: cmp.Or(g.instanceType, DefaultInstanceType),
		Subnet: cmp.Or(g.subnetPool, "default"), CreatedAt: timestamppb.New(now),
		ProviderKind: providerKind, Region: region, Zone: s.id,
	}}
	if s.noRoom {
		i.LastError, i.LastErrorAt = "no capacity", timestamppb.New(now)
	}
	s.instances[i.Id] = i
	s.touch(i)
	return i
}
