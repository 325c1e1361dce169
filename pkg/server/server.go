package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/leader"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// Server is one running server. Its fields are set in the order of the boot and
// do not change after it, but for latest and current.
type Server struct {
	cfg         Config
	holder      string       // the server's name in elections and records, unique to this start
	bare        object.Store // the election's and the operators': their reads are no progress of the work
	store       object.Store
	needs       *election.Needs
	handshakes  *rpc.Handshakes // on all listeners
	instancesAt addressIndex    // of instances
	ready       Readiness
	health      healthEndpoint

	static    *leader.Static
	boot      *config.Shard                // what this process was started on
	latest    atomic.Pointer[config.Shard] // what it ran last
	addresses addresses
	trust     trust
	provider  openedProvider
	ledger    *ledger.Ledger
	elector   *election.Elector
	services  *services
	fail      context.CancelCauseFunc // ends the process for a reason

	stuck   atomic.Value                // string: what keeps this leader from acting; empty: nothing
	current atomic.Pointer[leader.Term] // nil while this server does not lead
}

// Run runs a server until ctx ends, and then hands over: it stops acting,
// releases the lead, sends its clients away and returns.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg.Times = cfg.Times.withDefaults()
	s, err := newServer(cfg)
	if err != nil {
		return err
	}
	if err := s.health.open(ctx); err != nil {
		return err
	}
	defer s.close()
	cfg.Logger.Info("starting", slog.String("version", cfg.Version), slog.String("shard", cfg.Shard),
		slog.String("holder", s.holder), slog.String("health", s.health.addr))
	if err := s.bootUntilReady(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	return s.serve(ctx)
}

func newServer(cfg Config) (*Server, error) {
	// The id says to people who holds the lead; the suffix makes each start of
	// the process another holder.
	suffix, err := fleet.NewID("run", cfg.Now(), cfg.Random)
	if err != nil {
		return nil, err
	}
	store, err := openStore(cfg)
	if err != nil {
		return nil, fmt.Errorf("open object storage: %w", err)
	}
	needs := election.NewNeeds(nil)
	s := &Server{cfg: cfg, holder: cfg.ID + "." + string(suffix), bare: store, store: accounted{store, needs}, needs: needs}
	s.static = &leader.Static{
		Store: s.store, Shard: cfg.Shard, Check: cfg.checkShard, Logger: cfg.Logger,
		Checks: func(shard *config.Shard) config.Checks { return cfg.checks(shard, s.provider.Provider) },
	}
	s.health, s.trust = healthEndpoint{cfg: cfg, ready: &s.ready}, trust{cfg: cfg, addresses: &s.addresses}
	s.handshakes = rpc.NewHandshakes(rpc.HandshakeLimits{}, s.ofInstance)
	return s, nil
}

// close lets go of everything that the boot opened.
func (s *Server) close() {
	if s.services != nil {
		s.services.listeners.close()
	}
	s.provider.close()
	if s.ledger != nil {
		// The cache is made again from the store when it misses something.
		_ = s.ledger.Close()
	}
	s.health.close()
}

// serve serves, campaigns, and hands over when ctx ends.
func (s *Server) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.fail = cancel
	s.services.start(context.WithoutCancel(ctx), cancel) // a server that hands over still serves
	go s.trust.keepCertificate(ctx)
	go s.tellWhatIsMissing(ctx)
	s.ready.Ready("standing by")
	at := s.addresses.advertised
	s.cfg.Logger.Info("serving", slog.String("election", at.Election), slog.String("registration", at.Registration),
		slog.String("operator", at.Operator), slog.String("agent", at.Agent))

	err := s.elector.Run(ctx, s.lead)
	s.ready.ShutDown()
	s.services.stop(ctx, time.Duration(s.latest.Load().Server.ShutdownTimeout))
	s.cfg.Logger.Info("stopped")
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}
