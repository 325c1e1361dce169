package identities

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server/election"
)

// Servers are the names and addresses of servers, for which no instance is certified.
type Servers struct {
	DNS []string
	IPs []netip.Addr
}

// And returns the names and addresses of both.
func (s Servers) And(others Servers) Servers {
	return Servers{DNS: slices.Concat(s.DNS, others.DNS), IPs: slices.Concat(s.IPs, others.IPs)}
}

// localhost is a name of every host; it is not a server's.
const localhost = "localhost"

// Name reports whether a host name is a server's.
func (s Servers) Name(name string) bool {
	return name != localhost && slices.ContainsFunc(s.DNS, func(own string) bool {
		return strings.EqualFold(strings.TrimSuffix(own, "."), name)
	})
}

// Below reports whether a server's name is one label below a domain.
func (s Servers) Below(domain string) bool {
	return slices.ContainsFunc(s.DNS, func(own string) bool {
		_, parent, ok := strings.Cut(strings.TrimSuffix(own, "."), ".")
		return ok && strings.EqualFold(parent, domain)
	})
}

// Address reports whether an address is a server's. Loopback addresses are not.
func (s Servers) Address(addr netip.Addr) bool {
	return !addr.IsLoopback() && slices.ContainsFunc(s.IPs, func(own netip.Addr) bool { return own.WithZone("") == addr })
}

// Hosts returns the names and addresses as text, each once, without those that every host has.
func (s Servers) Hosts() (all []string) {
	add := func(host string) {
		if !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	for _, name := range s.DNS {
		if name != localhost {
			add(name)
		}
	}
	for _, ip := range s.IPs {
		if !ip.IsLoopback() {
			add(ip.String())
		}
	}
	return all
}

// elections is the prefix of the election records of all shards.
const elections = "leader/"

// serversLook is how long the names and addresses of other shards' servers are cached.
const serversLook = time.Minute

// serversStopped is the age at which an unrenewed election record counts like a released one. No
// lease is that long.
const serversStopped = 24 * time.Hour

// serversTimeout bounds one refresh.
const serversTimeout = 10 * time.Second

// Directory knows the names and addresses of this shard's servers, and of the servers of all
// shards of the cluster, from their election records. Safe for concurrent use.
type Directory struct {
	own   func() Servers
	store object.Store
	now   func() time.Time

	turn   chan struct{} // held by the refresh that reads
	at     time.Time     // of the last read; zero: never
	read   map[string]electionRecord
	others atomic.Pointer[others] // of the election records
}

// others are the servers of all shards. A provider may have given the name or the address of a stopped
// one to a machine: it is that machine's if the provider shows it, and the server's otherwise.
type others struct{ running, stopped Servers }

// electionRecord is an election record as read.
type electionRecord struct {
	etag     object.ETag
	since    time.Time            // when this version was first read
	released bool                 // and handed to no other server
	named    map[string]time.Time // the servers of this version and of earlier ones, and when each was last named
}

// NewDirectory returns a directory that knows only this shard's own servers until its first
// refresh. store has the election records.
func NewDirectory(own func() Servers, store object.Store, now func() time.Time) *Directory {
	s := &Directory{own: own, store: store, now: now, turn: make(chan struct{}, 1)}
	s.others.Store(&others{})
	return s
}

// Name reports whether a host name is that of a server that runs.
func (s *Directory) Name(name string) bool {
	return s.own().Name(name) || s.others.Load().running.Name(name)
}

// Address is Name for an address.
func (s *Directory) Address(addr netip.Addr) bool {
	return s.own().Address(addr) || s.others.Load().running.Address(addr)
}

// Below reports whether the name of a server, running or stopped, is one label below a domain.
func (s *Directory) Below(domain string) bool {
	all := s.others.Load()
	return s.own().Below(domain) || all.running.Below(domain) || all.stopped.Below(domain)
}

// stopped returns the servers that have stopped: those of the shards that no server led at the last
// refresh, and those that an election record no longer names.
func (s *Directory) stopped() Servers { return s.others.Load().stopped }

// refresh reads new election records. Only a first refresh returns an error: a later one that
// fails leaves the cached state.
func (s *Directory) refresh(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	now := s.now()
	if !s.at.IsZero() && now.Sub(s.at) < serversLook && !now.Before(s.at) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, serversTimeout)
	defer cancel()
	read, err := s.records(ctx)
	if err != nil && s.at.IsZero() {
		return fmt.Errorf("read the election records of the cluster: %w", err)
	}
	s.at = now
	if err != nil {
		return nil // the cached state stays valid
	}
	s.read = read
	var all others
	for _, r := range read {
		r.addTo(&all, now)
	}
	s.others.Store(&all)
	return nil
}

// records reads the election records that have changed. A malformed one has no servers. One that
// the store refuses to return has those that it had when it was last read.
func (s *Directory) records(ctx context.Context) (map[string]electionRecord, error) {
	infos, err := object.All(ctx, s.store, elections)
	if err != nil {
		return nil, err
	}
	read := make(map[string]electionRecord, len(infos))
	for _, info := range infos {
		was, known := s.read[info.Key]
		if known && was.etag == info.ETag {
			read[info.Key] = was
			continue
		}
		o, err := s.store.Get(ctx, info.Key)
		if errors.Is(err, object.ErrRefused) {
			read[info.Key] = was
			continue
		}
		if err != nil {
			return nil, err
		}
		read[info.Key] = was.next(o, s.now())
	}
	return read, nil
}

// next returns a record's next version. A malformed one names no servers.
func (r electionRecord) next(o object.Object, now time.Time) electionRecord {
	next := electionRecord{etag: o.ETag, since: now, named: map[string]time.Time{}}
	for host, at := range r.named {
		if now.Sub(at) < serversStopped {
			next.named[host] = at
		}
	}
	is, err := election.ParseRecord(o.Body)
	if err != nil {
		return next
	}
	next.released = is.Released && is.Successor == ""
	hosts, _ := election.ParseServers(o.Body) // none, if only these are malformed
	for _, addr := range []string{is.Addrs.Election, is.Addrs.Registration, is.Addrs.Operator, is.Addrs.Agent} {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			hosts = append(hosts, host)
		}
	}
	for _, host := range hosts {
		next.named[host] = now
	}
	return next
}

// addTo adds a record's servers to all.
func (r electionRecord) addTo(all *others, now time.Time) {
	for host, named := range r.named {
		to := &all.running
		if r.released || now.Sub(r.since) >= serversStopped || named.Before(r.since) {
			to = &all.stopped
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			to.IPs = append(to.IPs, ip.Unmap())
		} else {
			to.DNS = append(to.DNS, host)
		}
	}
}
