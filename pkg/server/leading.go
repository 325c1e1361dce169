package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/leader"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/roster"
	"github.com/nstance/nstance/pkg/server/traces"
	"github.com/nstance/nstance/pkg/server/writes"
)

// takeOverBackoff is the back-off of a leader that can't take over, because the store or the
// config can't be read. It keeps its lease meanwhile; if the store stays unreachable, the
// lease expires and ends the term.
func takeOverBackoff() retry.Backoff {
	return retry.Backoff{First: time.Second, Limit: 30 * time.Second, Least: 500 * time.Millisecond}
}

// lead runs one term of leadership: it takes over, publishes the term to the services, and
// reconciles until ctx ends.
func (s *Server) lead(ctx context.Context, fence *election.Term) error {
	began := s.cfg.Now()
	s.cfg.Logger.Info("leading", slog.Uint64("epoch", fence.Epoch()))
	defer s.ready.Ready("standing by")
	for failures := 0; ; failures++ {
		t, err := leader.TakeOver(ctx, s.leaderConfig(fence))
		s.needs.Start(election.NeedTakeover).End(err) // clears the need, or counts the failure
		if err == nil {
			defer s.last.Go(func() { t.StoreEvents(context.WithoutCancel(ctx)) }) // after the lead is given up
			return t.Run(func() (withdraw func()) { return s.publish(t, fence, began) })
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, election.ErrNotLeader):
			s.cfg.Logger.Warn("gave up the lead", slog.Any("error", err))
			return nil
		case errors.Is(err, leader.ErrRestart):
			s.fail(err)
			return nil
		}
		s.cfg.Logger.Error("can't take over yet", slog.Any("error", err))
		s.ready.Ready("leading, but waiting: " + leader.PartOf(err))
		if retry.Wait(ctx, takeOverBackoff().Draw(failures+1, s.cfg.uniform)) != nil {
			return nil
		}
	}
}

func (s *Server) leaderConfig(fence *election.Term) leader.Config {
	return leader.Config{
		Fence: fence, Ledger: s.ledger, Static: s.static, Boot: s.boot, Writer: s.holder, Store: s.store, Operators: s.bare,
		Provider: s.provider.Provider, Listing: s.listing,
		Secrets: s.trust.sealed, CA: s.trust.CA, Bundle: s.trust.bundle, NonceKey: s.trust.NonceKey,
		RestoreTrust: s.trust.restore,
		Instances:    s.addresses.instances, OperatorAddr: s.addresses.advertised.Operator,
		Servers:      s.servers,
		Replacements: s.measure.Replacements, Starts: traces.NewStarts(s.cfg.Tracer, s.cfg.Now), Edits: traces.NewEdits(s.cfg.Tracer, s.cfg.Now),
		Running: s.running, Stuck: func() string { text, _ := s.stuck.Load().(string); return text },
		Outage: s.outage.Current,
		Cut:    s.services.agents.Cut, Called: s.called, Found: s.found, CertificateExpires: s.services.agents.CertificateExpires,
		ConfigLook: s.cfg.Times.ConfigLook, Now: s.cfg.Now, Random: s.cfg.Random, Uniform: s.cfg.uniform, Logger: s.cfg.Logger,
	}
}

// called returns when the agent of an instance without a record last called: now, if it has an open
// stream.
func (s *Server) called(id fleet.InstanceID) time.Time {
	if s.services.agents.Connected(id) {
		return s.cfg.Now()
	}
	return s.services.judge.Called(id)
}

// found records that an operator calls which no server registered.
func (s *Server) found(ctx context.Context, o fleet.Operator) {
	e := audit.Event{
		Kind: audit.Registration, Outcome: audit.Found, Object: "operator " + o.Tenant + "/" + string(o.ID),
		Actor: "spiffe://" + s.trust.ClusterID + "/" + o.Tenant + "/operator/" + string(o.ID),
		Claims: []audit.Detail{
			{Name: "registered_at", To: o.RegisteredAt.UTC().Format(time.RFC3339)}, {Name: "writer", To: o.Writer},
			{Name: "public_key_sha256", To: o.PublicKeySHA256},
		},
	}
	e.Action, _ = grpc.Method(ctx)
	if p, ok := peer.FromContext(ctx); ok {
		e.From = p.Addr.String()
	}
	s.audit.Record(ctx, e)
}

// publish starts serving callers with a term.
func (s *Server) publish(t *leader.Term, fence *election.Term, began time.Time) (withdraw func()) {
	s.published.Store(&termBegin{fence.Epoch(), began})
	s.current.Store(t)
	s.reportOutage()
	s.ready.Ready("leading")
	s.measure.TookOver(s.cfg.Now().Sub(began))
	// Logged only now: calls after this line are served.
	s.cfg.Logger.Info("ready to act", slog.Uint64("epoch", fence.Epoch()), slog.Duration("took", s.cfg.Now().Sub(began)))
	return func() {
		if s.current.CompareAndSwap(t, nil) {
			s.ready.Ready("standing by")
		}
	}
}

// termBegin is when a term of this server began.
type termBegin struct {
	epoch uint64
	at    time.Time
}

// leadership describes this server as the leader, or is the error of a server that does not lead.
func (s *Server) leadership() (operators.Leadership, error) {
	lease, leads := s.elector.Lease(s.cfg.Now())
	term := s.published.Load()
	if !leads || term == nil || term.epoch != lease.Epoch {
		return operators.Leadership{}, writes.ErrNoTerm()
	}
	return operators.Leadership{
		Server: s.cfg.ID, Version: s.cfg.Version, Epoch: lease.Epoch, Since: term.at, LeaseRenewed: lease.Renewed, LeaseEnds: lease.Ends,
		Standbys: s.standbys.count(),
	}, nil
}

// running applies the config that a term starts to run to the server.
func (s *Server) running(c *config.Shard) {
	s.latest.Store(c)
	if err := s.elector.SetTiming(timing(c)); err != nil {
		s.cfg.Logger.Error("invalid election timing, the previous one stays active", slog.Any("error", err))
	}
}

func timing(c *config.Shard) election.Timing {
	e := c.Server.LeaderElection
	return election.Timing{
		RenewInterval: time.Duration(e.RenewInterval), LeaseDuration: time.Duration(e.LeaseDuration), FenceWindow: time.Duration(e.FenceWindow),
		GiveUp: time.Duration(e.GiveUp),
	}
}

// ofTerm returns a function that returns a part of the current term, or an error if there is no
// term.
func ofTerm[T any](s *Server, offer func(*leader.Term) T) func() (T, error) {
	return func() (none T, err error) {
		if t := s.current.Load(); t != nil {
			return offer(t), nil
		}
		return none, writes.ErrNoTerm()
	}
}

// operatorJudge implements rpc.Judge for operators: it refuses those whose record is missing or
// marked as removed. Verdicts are cached per term, so that a new leader relies on nothing it
// learned long ago.
type operatorJudge func() (*roster.Roster, error)

var _ rpc.Judge = operatorJudge(nil)

// Known implements rpc.Judge.
func (current operatorJudge) Known(caller pki.Caller) (verdict error, ok bool) {
	r, err := current()
	if err == nil {
		verdict, ok = r.Known(caller)
	}
	return verdict, ok
}

// Verify implements rpc.Judge.
func (current operatorJudge) Verify(ctx context.Context, caller pki.Caller) error {
	r, err := current()
	if err != nil {
		return err
	}
	return r.Verify(ctx, caller)
}
