package server

import (
	"net/netip"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// addressesAge is the maximum age of the index. It is built only when a connection arrives,
// which takes a few milliseconds for 5,000 instances.
const addressesAge = time.Second

// addressIndex has the addresses of the shard's instances, from their records and, for those
// that have not registered yet, from the provider. Safe for concurrent use.
type addressIndex struct {
	mu    sync.Mutex
	at    time.Time
	index map[netip.Addr]struct{}
}

// ofInstance reports whether an address is an instance's, from memory.
func (s *Server) ofInstance(addr netip.Addr) bool {
	a := &s.instancesAt
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := s.cfg.Now(); a.index == nil || now.Sub(a.at) >= addressesAge || now.Before(a.at) {
		a.at, a.index = now, s.indexAddresses()
	}
	_, found := a.index[addr]
	return found
}

func (s *Server) indexAddresses() map[netip.Addr]struct{} {
	index := make(map[netip.Addr]struct{})
	t := s.current.Load()
	for _, i := range s.ledger.Instances() {
		if i.Phase == fleet.Deleted {
			continue
		}
		for _, text := range i.IPs {
			if addr, err := netip.ParseAddr(text); err == nil {
				index[addr.Unmap()] = struct{}{}
			}
		}
		if t == nil {
			continue
		}
		for _, addr := range t.Addresses(i.ID) {
			index[addr.Unmap()] = struct{}{}
		}
	}
	return index
}
