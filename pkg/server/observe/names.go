package observe

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// This file holds the names and addresses of machines as the provider reports them.

// Machine is the provider's last answer about an instance's VM. It is zero if there was none
// in this term.
type Machine struct {
	Names     []string // in the provider's DNS
	Addresses []netip.Addr
	Running   bool      // the VM runs, so its addresses are assigned
	AskedAt   time.Time // see Described; zero: none in this term
}

// Machine returns the provider's last answer about an instance's VM.
func (s *State) Machine(id fleet.InstanceID) (m Machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.instances[id]; i != nil {
		m.Names, m.Addresses = slices.Clone(i.names), slices.Clone(i.addresses)
		m.Running, m.AskedAt = i.state == provider.StateRunning, i.describedAt
	}
	return m
}

// Described records when the call was sent that describes a VM for the sake of its names and
// addresses, and succeeded or is in progress; zero: it failed.
func (s *State) Described(id fleet.InstanceID, at time.Time) {
	s.with(id, func(i *instance) { i.describedAt = at })
}

// Named returns the instances whose VM has the given lowercase name in the provider's DNS, as
// last shown for VMs that have not ended. The caller must not modify the result.
func (s *State) Named(name string) []fleet.InstanceID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named[name]
}

// NamedBelow returns the instances whose VM has a name one label below a domain.
func (s *State) NamedBelow(domain string) (ids []fleet.InstanceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, holders := range s.named {
		if _, parent, ok := strings.Cut(name, "."); ok && parent == domain {
			ids = append(ids, holders...)
		}
	}
	return ids
}

// Addressed returns the instances whose VM has the given address, as last shown for VMs that
// have not ended. The caller must not modify the result.
func (s *State) Addressed(addr netip.Addr) []fleet.InstanceID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addressed[addr]
}

// naming is what an instance is indexed by.
type naming struct {
	names     []string
	addresses []netip.Addr
}

func (i *instance) naming() naming {
	if i.ended {
		return naming{}
	}
	return naming{i.names, i.addresses}
}

// rename indexes an instance by other names and addresses than before. Most answers change none,
// and thousands of machines may share an address. The caller holds the lock.
func (s *State) rename(id fleet.InstanceID, was, is naming) {
	if slices.Equal(was.names, is.names) && slices.Equal(was.addresses, is.addresses) {
		return
	}
	for _, name := range was.names {
		s.named.Remove(name, id)
	}
	for _, addr := range was.addresses {
		s.addressed.Remove(addr, id)
	}
	for _, name := range is.names {
		s.named.Add(name, id)
	}
	for _, addr := range is.addresses {
		s.addressed.Add(addr, id)
	}
}
