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
	return name != localhost && slices.ContainsFunc(s.DNS, func(own string) bool { return strings.EqualFold(own, name) })
}

// Below reports whether a server's name is one label below a domain.
func (s Servers) Below(domain string) bool {
	return slices.ContainsFunc(s.DNS, func(own string) bool {
		_, parent, ok := strings.Cut(own, ".")
		return ok && strings.EqualFold(parent, domain)
	})
}

// Address reports whether an address is a server's. Loopback addresses are not.
func (s Servers) Address(addr netip.Addr) bool {
	return !addr.IsLoopback() && slices.Contains(s.IPs, addr)
}

// elections is the prefix of the election records of all shards.
const elections = "leader/"

// serversLook is how long the names and addresses of other shards' servers are cached.
const serversLook = time.Minute

// serversGone is the age at which an unrenewed election record is ignored: a provider may have
// given the addresses of a removed shard to a new machine. No lease is that long.
const serversGone = 24 * time.Hour

// serversTimeout bounds one refresh.
const serversTimeout = 10 * time.Second

// Directory knows the names and addresses of this shard's servers, and of the leaders of all
// shards of the cluster, from their election records. Safe for concurrent use.
type Directory struct {
	own   func() Servers
	store object.Store
	now   func() time.Time

	turn chan struct{} // held by the refresh that reads
	at   time.Time     // of the last read; zero: never
	read map[string]electionRecord
	led  atomic.Pointer[Servers] // of the election records
}

// electionRecord is an election record as read.
type electionRecord struct {
	etag    object.ETag
	since   time.Time // when this version was first read
	servers Servers
}

// NewDirectory returns a directory that knows only this shard's own servers until its first
// refresh. store has the election records.
func NewDirectory(own func() Servers, store object.Store, now func() time.Time) *Directory {
	s := &Directory{own: own, store: store, now: now, turn: make(chan struct{}, 1)}
	s.led.Store(&Servers{})
	return s
}

// known returns this shard's servers, and the leaders as of the last refresh.
func (s *Directory) known() Servers { return s.own().And(*s.led.Load()) }

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
	var led Servers
	for _, r := range read {
		if now.Sub(r.since) < serversGone {
			led = led.And(r.servers)
		}
	}
	s.led.Store(&led)
	return nil
}

// records reads the election records that have changed. A malformed or released one has no
// servers. One that the store refuses to return has those that it had when it was last read.
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
		now := electionRecord{etag: o.ETag, since: s.now()}
		if r, err := election.ParseRecord(o.Body); err == nil && !r.Released {
			now.servers = hostsOf(r.Addrs)
		}
		read[info.Key] = now
	}
	return read, nil
}

// hostsOf returns the hosts of the addresses.
func hostsOf(a election.Addrs) (s Servers) {
	for _, addr := range []string{a.Election, a.Registration, a.Operator, a.Agent} {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			s.IPs = append(s.IPs, ip.Unmap())
		} else {
			s.DNS = append(s.DNS, host)
		}
	}
	return s
}
