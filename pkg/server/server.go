package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/leader"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/measure"
	"github.com/nstance/nstance/pkg/server/outage"
)

// Server is one running server. Its fields are set in the order of the boot and immutable
// afterwards, except latest and current.
type Server struct {
	cfg         Config
	holder      string       // the server's name in elections and records, unique to this start
	bare        object.Store // for the election and the operators: their reads are no progress of the shard's work
	store       object.Store
	outage      *outage.Watch // of object storage
	needs       *election.Needs
	handshakes  *rpc.Handshakes // of all listeners
	audit       *audit.Log      // of all listeners
	instancesAt addressIndex    // addresses of the shard's instances
	ready       Readiness
	health      healthEndpoint
	measure     *measure.Server
	metrics     metricsEndpoint

	static    *leader.Static
	boot      *config.Shard                // the config this process was started with
	latest    atomic.Pointer[config.Shard] // the config it ran last
	addresses addresses
	standbys  standbys
	trust     trust
	provider  openedProvider
	ledger    *ledger.Ledger
	elector   *election.Elector
	services  *services
	fail      context.CancelCauseFunc // ends the process with a cause

	booted    atomic.Bool                 // the fields above are set
	telling   sync.Mutex                  // held while the current term is told about an outage
	stuck     atomic.Value                // string: why this leader can't act; empty if it can
	current   atomic.Pointer[leader.Term] // nil while this server does not lead
	published atomic.Pointer[termBegin]   // the last term that served calls
	last      sync.WaitGroup              // what terms that are over still write
}

// Run runs a server until ctx ends, and then hands over: it stops acting, releases the lead,
// disconnects its clients and returns.
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
	if err := s.metrics.open(ctx, "--metrics-addr", cfg.Bind.Metrics); err != nil {
		return err
	}
	cfg.Logger.Info("starting", slog.String("version", cfg.Version), slog.String("shard", cfg.Shard),
		slog.String("holder", s.holder), slog.String("health", s.health.addr))
	var probes sync.WaitGroup
	defer probes.Wait()
	probing, stop := context.WithCancel(ctx)
	defer stop()
	probes.Go(func() { s.outage.Run(probing) })
	if err := s.bootUntilReady(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	return s.serve(ctx)
}

func newServer(cfg Config) (*Server, error) {
	// The ID shows administrators which server leads; the suffix makes each start of the
	// process a distinct holder.
	suffix, err := fleet.NewID("run", cfg.Now(), cfg.Random)
	if err != nil {
		return nil, err
	}
	store, err := openStore(cfg)
	if err != nil {
		return nil, fmt.Errorf("open object storage: %w", err)
	}
	needs := election.NewNeeds(nil)
	s := &Server{cfg: cfg, holder: cfg.ID + "." + string(suffix), needs: needs}
	s.measure, s.metrics = s.newMetrics()
	store = s.measure.Calls.Store(store)
	s.outage = outage.New(writesTo(store, "probe/"+string(suffix)), cfg.Now)
	s.ready.storage = func() string { return s.outage.Current().String() }
	s.bare = object.Observed{Store: store, Begin: s.outage.Begin}
	s.store = accounted{s.bare, needs}
	s.provider.calls = s.measure.Calls
	s.static = &leader.Static{
		Store: s.store, Shard: cfg.Shard, Check: cfg.checkShard, Logger: cfg.Logger,
		Checks: func(shard *config.Shard) config.Checks { return cfg.checks(shard, s.provider.Provider) },
	}
	s.standbys.now = cfg.Now
	s.health, s.trust = healthEndpoint{cfg: cfg, ready: &s.ready}, trust{cfg: cfg, addresses: &s.addresses}
	s.handshakes = rpc.NewHandshakes(rpc.HandshakeLimits{}, s.ofInstance)
	s.audit, err = audit.New(audit.Config{Logger: cfg.Logger, Now: cfg.Now, Sink: auditedChanges{s}})
	return s, err
}

// auditedChanges records what callers changed in the history of the current term.
type auditedChanges struct{ server *Server }

// Record implements audit.Sink.
func (c auditedChanges) Record(e audit.Event) {
	if t := c.server.current.Load(); t != nil {
		t.Audited(e)
	}
}

// close releases everything that the boot opened.
func (s *Server) close() {
	if s.services != nil {
		s.services.listeners.close()
	}
	s.provider.close()
	if s.ledger != nil {
		// The cache is rebuilt from the store if it is incomplete.
		_ = s.ledger.Close()
	}
	s.metrics.close()
	s.health.close()
}

// serve serves, campaigns, and hands over when ctx ends.
func (s *Server) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.fail = cancel
	s.services.start(context.WithoutCancel(ctx), cancel) // it still serves while it hands over
	go s.trust.runRenewal(ctx)
	go s.reportMissing(ctx)
	go s.reportOutages(ctx)
	s.booted.Store(true)
	s.ready.Ready("standing by")
	at := s.addresses.advertised
	s.cfg.Logger.Info("serving", slog.String("election", at.Election), slog.String("registration", at.Registration),
		slog.String("operator", at.Operator), slog.String("agent", at.Agent))

	err := s.elector.Run(ctx, s.lead)
	s.ready.ShutDown()
	s.services.stop(ctx, time.Duration(s.latest.Load().Server.ShutdownTimeout))
	s.last.Wait()
	s.cfg.Logger.Info("stopped")
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}
