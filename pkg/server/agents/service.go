// Package agents serves AgentService: the streams that every instance's agent
// holds open to the server that leads.
//
// The health stream is the heartbeat. Its end is news at least as important as
// what comes over it, so each instance has one session at a time: a newer health
// stream takes the place of an older one, unless it is of a second machine with the
// same identity (claims.go), and only the end of the current one is reported as a
// disconnect. Streams end with the term they were opened in,
// which tells the agent to look for the next leader and is no disconnect, and
// when their instance is on its way out.
package agents

import (
	"context"
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Shard is what the leader's term offers to agents. It is comparable, and equal to itself
// alone for as long as the term lasts. Its methods return at once, and may call Cut.
type Shard interface {
	AgentConnected(id fleet.InstanceID)
	AgentDisconnected(id fleet.InstanceID, at time.Time)
	// AgentReport tells of a report. Of those that come faster than any agent is
	// set up to report, only what is new is told.
	AgentReport(id fleet.InstanceID, r fleet.Report)
	// IdentityShared tells that two machines have an instance's identity, and which of
	// them is refused; IdentityNotShared that only one was heard of for some minutes.
	IdentityShared(id fleet.InstanceID, message string)
	IdentityNotShared(id fleet.InstanceID)
	// Addresses returns what the provider knows of an instance's addresses.
	Addresses(id fleet.InstanceID) []netip.Addr
	// Gone reports whether an instance is on its way out or gone. When it becomes
	// so, Cut is called after Gone says so.
	Gone(id fleet.InstanceID) bool
	// Files gives instances their files.
	Files() Files
	// Done is closed when the term ends.
	Done() <-chan struct{}
}

// Config is what the service needs.
type Config struct {
	// Shard returns the current term's shard, or an error that tells the agent
	// where the leader is.
	Shard func() (Shard, error)
	// Renew makes a certificate for the caller of ctx and another key (PEM). Its
	// errors are kinds of package rpc.
	Renew func(ctx context.Context, publicKey string) (*nstancev1.Identity, error)
	Now   func() time.Time
}

// Service implements AgentService. Safe for concurrent use.
type Service struct {
	nstancev1.UnimplementedAgentServiceServer
	cfg      Config
	sessions sessions
	cuts     cuts
}

// New returns a service that serves cfg.Shard.
func New(cfg Config) *Service {
	return &Service{
		cfg: cfg, sessions: sessions{now: cfg.Now, places: map[fleet.InstanceID]*place{}}, cuts: cuts{open: map[fleet.InstanceID]*cut{}},
	}
}

var _ nstancev1.AgentServiceServer = (*Service)(nil)

// Cut ends every stream of an instance, because it is on its way out.
func (s *Service) Cut(id fleet.InstanceID) { s.cuts.cut(id) }

// open finds the term's shard and the instance that calls.
func (s *Service) open(ctx context.Context) (Shard, fleet.InstanceID, error) {
	shard, err := s.cfg.Shard()
	if err != nil {
		return nil, "", err
	}
	caller, ok := rpc.CallerFrom(ctx)
	if !ok {
		return nil, "", rpc.Unauthenticated.Errorf("no client certificate")
	}
	id, err := fleet.ParseID(caller.ID)
	if err != nil {
		return nil, "", rpc.Denied.Errorf("the client certificate names no instance: %w", err)
	}
	return shard, id, nil
}

// entered is a stream that was let in.
type entered struct {
	shard Shard
	id    fleet.InstanceID
	cut   *cut
}

// admitted is open, of a call that is no health stream: a machine that is refused as a
// second one with the instance's identity is so for these as well.
func (s *Service) admitted(ctx context.Context) (Shard, fleet.InstanceID, error) {
	shard, id, err := s.open(ctx)
	if err == nil {
		err = s.sessions.check(ctx, id, shard)
	}
	return shard, id, err
}

// enter lets a stream in, for leave to be called at its end.
func (s *Service) enter(ctx context.Context) (entered, error) {
	shard, id, err := s.open(ctx)
	if err != nil {
		return entered{}, err
	}
	in := entered{shard, id, s.cuts.join(id)}
	if shard.Gone(id) { // since the certificate was judged; from here on Cut finds us
		s.leave(in)
		return entered{}, errRemoved()
	}
	return in, nil
}

func (s *Service) leave(in entered) { s.cuts.leave(in.id, in.cut) }

// errRemoved ends the streams of an instance that is on its way out.
func errRemoved() error {
	return rpc.CertificateRevoked.Errorf("the instance is being removed")
}

// moved is the answer to a stream whose term is over. This server may even lead
// again; then the agent is to come back to it.
func (s *Service) moved() error {
	if _, err := s.cfg.Shard(); err != nil {
		return err
	}
	return rpc.Unavailable.Errorf("the term that this stream was opened in is over")
}
