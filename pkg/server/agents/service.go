// Package agents serves AgentService: the streams that every instance's agent holds open to
// the leader.
//
// The health stream is the heartbeat. Its end matters at least as much as its reports, so each
// instance has one session at a time: a newer health stream replaces an older one, unless it
// comes from a second machine with the same identity (claims.go), and only the end of the
// current stream is reported as a disconnect. Streams end with the term in which they were
// opened, which makes the agent look for the next leader and is no disconnect, and when their
// instance is removed.
package agents

import (
	"context"
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Shard is what the leader's term offers to agents. It is comparable: each term has its own.
// Its methods return at once, and may call Cut.
type Shard interface {
	AgentConnected(id fleet.InstanceID)
	AgentDisconnected(id fleet.InstanceID, at time.Time)
	// AgentReport passes on a report. Of reports that come faster than any agent is configured
	// to send them, only changes are passed on.
	AgentReport(id fleet.InstanceID, r fleet.Report)
	// IdentityShared reports that two machines use an instance's identity, and which one is
	// refused. IdentityNotShared reports that only one was seen for some minutes.
	IdentityShared(id fleet.InstanceID, message string)
	IdentityNotShared(id fleet.InstanceID)
	// Addresses returns the instance's addresses according to the provider.
	Addresses(id fleet.InstanceID) []netip.Addr
	// Gone reports whether an instance is shutting down or gone. Cut is called once Gone
	// returns true.
	Gone(id fleet.InstanceID) bool
	// Files delivers files to instances.
	Files() Files
	// Done is closed when the term ends.
	Done() <-chan struct{}
}

// Config is what the service needs.
type Config struct {
	// Shard returns the current term's shard, or an error that names the leader.
	Shard func() (Shard, error)
	// Renew issues a certificate for the caller of ctx and a new public key (PEM). Its errors
	// are kinds of package rpc.
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

// Cut ends every stream of an instance that is being removed.
func (s *Service) Cut(id fleet.InstanceID) { s.cuts.cut(id) }

// open returns the term's shard and the calling instance.
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

// entered is an admitted stream.
type entered struct {
	shard Shard
	id    fleet.InstanceID
	cut   *cut
}

// admitted is open for calls other than health streams. It also refuses a machine that is
// refused as the second one with the instance's identity.
func (s *Service) admitted(ctx context.Context) (Shard, fleet.InstanceID, error) {
	shard, id, err := s.open(ctx)
	if err == nil {
		err = s.sessions.check(ctx, id, shard)
	}
	return shard, id, err
}

// enter admits a stream; leave must be called at its end.
func (s *Service) enter(ctx context.Context) (entered, error) {
	shard, id, err := s.open(ctx)
	if err != nil {
		return entered{}, err
	}
	in := entered{shard, id, s.cuts.join(id)}
	if shard.Gone(id) { // may have changed since the certificate was checked; from here on Cut reaches this stream
		s.leave(in)
		return entered{}, errRemoved()
	}
	return in, nil
}

func (s *Service) leave(in entered) { s.cuts.leave(in.id, in.cut) }

// errRemoved ends the streams of an instance that is being removed.
func errRemoved() error {
	return rpc.CertificateRevoked.Errorf("the instance is being removed")
}

// moved is the answer to a stream whose term is over. If this server leads again, the agent is
// to reconnect to it.
func (s *Service) moved() error {
	if _, err := s.cfg.Shard(); err != nil {
		return err
	}
	return rpc.Unavailable.Errorf("the leader's term in which this stream was opened has ended")
}
