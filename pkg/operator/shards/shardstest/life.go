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

// The phases, as they are called in this package.
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
	leaving    []string // named to leave for the size, and not deleted yet
	conditions map[string]*nstancev1.Condition
	revision   uint64 // of the definition
	version    uint64 // of the last change
}

type instance struct {
	*nstancev1.InstanceStatus
	version uint64
	due     time.Time // when its next phase begins by itself; zero: it does not
	replace string    // why it goes as soon as another one has come; empty: it does not
	built   string    // from which definition
}

func (i *instance) active() bool { return i.Phase == pending || i.Phase == running }

// settle does what comes by itself, as long as something does, and has the streams
// look. It is called after each change.
func (s *state) settle() {
	for again := true; again; {
		now := time.Now()
		again = false
		of := map[string][]*instance{}
		for _, i := range s.byAge() {
			again = s.age(i, now) || again
			of[i.Group] = append(of[i.Group], i)
		}
		for _, g := range s.groups {
			again = s.keep(g, of[g.name], now) || again
		}
	}
	s.wind()
	s.changed.send()
}

// wind sets the timer for the next thing that comes by itself.
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

// age takes an instance on to its next phase, if that is due.
func (s *state) age(i *instance, now time.Time) bool {
	if i.Phase == pending && i.ProviderId == "" {
		if s.noRoom {
			i.due = time.Time{}
			return false
		}
		if i.due.IsZero() { // there was no room
			i.due = now
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

// address is one for an instance, made from the end of its id.
func address(id string) string {
	n := 0
	for _, c := range id[len(id)-6:] {
		n = (n*31 + int(c)) % 65000
	}
	return fmt.Sprintf("10.1.%d.%d", n/254, n%254+1)
}

// expire has an instance be deleted.
func (s *state) expire(i *instance, reason string, now time.Time) {
	if s.timing.Delete == 0 || i.ProviderId == "" {
		s.bury(i, reason, now)
		return
	}
	i.Phase, i.Reason, i.Connected, i.due = deleting, reason, false, now.Add(s.timing.Delete)
	s.touch(i)
}

// bury has an instance be deleted and leave a tombstone.
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

// leave has an instance go, with a drain where there is something to be drained.
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
			return // a drain gets no longer
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

// keep does one step to have a group be as it is desired, and reports whether there was
// one to do.
func (s *state) keep(g *group, byAge []*instance, now time.Time) bool {
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
	return len(m.marked) == 0 && m.up == size && s.rotate(g, m.active)
}

// members are a group's instances, as far as they matter to its size.
type members struct {
	active, marked []*instance // by age; marked: they go when others have come
	up             int         // of active, how many run
	there          int         // how many are not deleted yet
}

// sort sorts a group's instances, and has those leave that have to in any case.
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

// surplus is who goes first: one that never came up, or else the oldest.
func surplus(byAge []*instance) *instance {
	for _, i := range byAge {
		if i.Phase == pending {
			return i
		}
	}
	return byAge[0]
}

// rotate has the oldest instance of an earlier definition be replaced.
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

// create records an instance of a group.
func (s *state) create(g *group, now time.Time) *instance {
	// Ids carry milliseconds: these sort by age, however fast they are made.
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
