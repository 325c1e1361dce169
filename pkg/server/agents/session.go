package agents

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/delivery"
)

// sessions are the current health streams, one per instance. mu is held while calling the
// shard, so that the shard sees the streams of an instance in the order in which they replaced
// each other.
type sessions struct {
	now func() time.Time

	mu     sync.Mutex
	places map[fleet.InstanceID]*place
}

// place is what an instance's machines compete for. It belongs to one term; the next term
// decides and reports anew.
type place struct {
	shard   Shard
	current *session // nil if no stream is open
	claims  claims
	watched bool // a timer expires the claims
}

// session is one health stream. Its address is its identity.
type session struct {
	shard   Shard
	of      machine
	from    netip.AddrPort
	expires time.Time     // of the certificate
	ended   chan struct{} // closed when another stream replaced this one
	because error         // set before ended is closed
}

// source returns the machine that a call comes from.
func source(ctx context.Context) (machine, netip.AddrPort, error) {
	run, err := rpc.RunFrom(ctx)
	from := rpc.SourceFrom(ctx)
	return machine{host: from.Addr(), run: run}, from, err
}

// open makes a stream the current one of its instance, unless another machine keeps its
// streams.
func (s *sessions) open(ctx context.Context, id fleet.InstanceID, shard Shard) (*session, error) {
	of, from, err := source(ctx)
	if err != nil {
		return nil, err
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.place(id, shard)
	old := p.current
	decision, fresh := p.claims.arrive(of, p.holder(), shard.Addresses(id), now)
	if fresh {
		s.reportShared(id, p, of, from, decision)
	}
	if decision == refuse {
		return nil, errShared(old, of)
	}
	me := &session{shard: shard, of: of, from: from, ended: make(chan struct{})}
	if caller, ok := rpc.CallerFrom(ctx); ok {
		me.expires = caller.NotAfter
	}
	if old != nil {
		old.because = rpc.Conflict.Errorf("a newer health stream of this instance replaced this one")
		if decision == prefer {
			old.because = errShared(me, old.of)
		}
		close(old.ended)
		old.shard.Files().Disconnected(id)
	}
	p.current = me
	shard.AgentConnected(id)
	return me, nil
}

// place returns the place of an instance in a term. s.mu is held.
func (s *sessions) place(id fleet.InstanceID, shard Shard) *place {
	p := s.places[id]
	if p == nil {
		p = &place{}
		s.places[id] = p
	}
	if p.shard != shard {
		p.shard, p.claims, p.watched = shard, claims{}, false
	}
	return p
}

func (p *place) holder() *machine {
	if p.current == nil {
		return nil
	}
	return &p.current.of
}

// errShared refuses a machine in favor of keeper's; keeper is nil if that machine has no
// stream open.
func errShared(keeper *session, refused machine) error {
	by := "the machine known to the provider"
	if keeper != nil {
		by = fmt.Sprintf("the machine at %s", name(keeper.from, keeper.of.host == refused.host))
	}
	return rpc.IdentityShared.Errorf("two machines use the identity of this instance, and %s keeps it: "+
		"remove the identity folder from the copy and from its image", by)
}

// name returns the name of a machine in messages: its address, with the port if both machines
// have the same address.
func name(from netip.AddrPort, both bool) string {
	switch {
	case !from.IsValid():
		return "an unknown address"
	case both:
		return from.String()
	default:
		return from.Addr().String()
	}
}

// reportShared reports that two machines use the identity of an instance: the one whose
// session is current, and the new one. s.mu is held.
func (s *sessions) reportShared(id fleet.InstanceID, p *place, of machine, from netip.AddrPort, decision verdict) {
	both := p.current.of.host == of.host
	keeper, refused := name(p.current.from, both), name(from, both)
	if decision == prefer {
		keeper, refused = refused, keeper
	}
	why := "it connected first"
	if p.claims.byAddress {
		why = "the provider lists its address"
	}
	p.shard.IdentityShared(id, fmt.Sprintf("two machines use the identity of this instance: %s keeps its streams, because %s; %s is refused "+
		"and is probably a copy of the machine or of its disk", keeper, why, refused))
	if !p.watched {
		p.watched = true
		s.watch(id, p, sharedFor)
	}
}

// watch checks, after a while, whether only one machine is left with the identity.
func (s *sessions) watch(id fleet.InstanceID, p *place, after time.Duration) {
	shard := p.shard
	time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.places[id] != p || p.shard != shard {
			return
		}
		select {
		case <-shard.Done():
			return
		default:
		}
		now := s.now()
		if p.claims.expire(now); p.claims.shared() {
			s.watch(id, p, max(sharedFor-now.Sub(p.claims.lastRefused()), time.Second))
			return
		}
		p.watched = false
		shard.IdentityNotShared(id)
		s.tidy(id, p)
	})
}

// tidy drops a place without a stream and without claims. s.mu is held.
func (s *sessions) tidy(id fleet.InstanceID, p *place) {
	if p.current == nil && !p.watched && s.places[id] == p {
		delete(s.places, id)
	}
}

// check refuses a call, other than a health stream, of a refused machine.
func (s *sessions) check(ctx context.Context, id fleet.InstanceID, shard Shard) error {
	of, _, err := source(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[id]
	if p == nil || p.shard != shard || !p.claims.shared() {
		return nil
	}
	if holder := p.holder(); (holder == nil || *holder != of) && p.claims.refuses(of, holder, shard.Addresses(id)) {
		return errShared(p.current, of)
	}
	return nil
}

// isCurrent reports whether a stream is the current one of its instance. s.mu is held.
func (s *sessions) isCurrent(id fleet.InstanceID, me *session) bool {
	p := s.places[id]
	return p != nil && p.current == me
}

// report passes on a report, unless a newer stream has replaced this one.
func (s *sessions) report(id fleet.InstanceID, me *session, r fleet.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isCurrent(id, me) {
		me.shard.AgentReport(id, r)
	}
}

// reportFiles passes on a file report, unless a newer stream has replaced this one.
func (s *sessions) reportFiles(id fleet.InstanceID, me *session, r delivery.FileReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isCurrent(id, me) {
		me.shard.Files().Reported(id, r)
	}
}

// end ends a stream. It is a disconnect if the stream was the current one and did not end with
// its term, in which case the server left and not the agent.
func (s *sessions) end(id fleet.InstanceID, me *session, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isCurrent(id, me) {
		return
	}
	p := s.places[id]
	p.current = nil
	s.tidy(id, p)
	me.shard.Files().Disconnected(id)
	select {
	case <-me.shard.Done():
	default:
		me.shard.AgentDisconnected(id, now)
	}
}
