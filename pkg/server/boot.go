package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/leader"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// bootUntilReady retries the boot in the same process: a restart loop would only cost
// object-storage requests. The log has the reason for waiting; the health endpoint only names
// the part. Only errors that no retry can fix are returned.
func (s *Server) bootUntilReady(ctx context.Context) error {
	var last error
	for ctx.Err() == nil {
		last = s.bootOnce(ctx, last)
		if last == nil || errors.As(last, new(fatal)) {
			return last
		}
		wait := s.cfg.Times.BootRetry + s.cfg.jitter(s.cfg.Times.BootRetry/2+1)
		s.cfg.Logger.Error("can't start yet", slog.Any("error", last), slog.Duration("retry_in", wait))
		s.ready.NotReady("not ready: " + partAndReason(last))
		_ = retry.Wait(ctx, wait) // fails when ctx ends, which ends the loop
	}
	return nil
}

// partAndReason returns what the health endpoint shows of an error: the part, and the object
// store's reason. Neither is confidential.
func partAndReason(err error) string {
	text := leader.PartOf(err)
	if reason := object.Reason(err); reason != "" {
		text += ": " + reason
	}
	return text
}

// fatal is an error that no retry can fix.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// bootOnce runs the boot sequence. Meanwhile the health endpoint shows the current step and the
// failure of the previous attempt, so that a store that never responds is named.
func (s *Server) bootOnce(ctx context.Context, last error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Times.BootAttempt)
	defer cancel()
	for _, step := range []struct {
		part string
		do   func(context.Context) error
	}{
		{"object storage", s.probeStore},
		{leader.PartConfig, s.readBootConfig},
		{"cluster secrets", func(ctx context.Context) error { return s.trust.open(ctx, s.boot, s.store) }},
		{"provider", func(ctx context.Context) error { return s.provider.open(ctx, s.cfg, s.boot) }},
		{leader.PartLedger, s.openLedger},
		{"addresses", s.openServices},
	} {
		doing := "starting: " + step.part
		if last != nil {
			doing += "; last attempt not ready: " + partAndReason(last)
		}
		s.ready.NotReady(doing)
		if err := step.do(ctx); err != nil {
			return &leader.PartError{Part: step.part, Err: err}
		}
	}
	return nil
}

func (s *Server) probeStore(ctx context.Context) error {
	id, err := fleet.NewID("prb", s.cfg.Now(), s.cfg.Random)
	if err != nil {
		return err
	}
	if err := object.Probe(ctx, s.store, string(id)); err != nil {
		return fmt.Errorf("check object storage: %w", err)
	}
	return nil
}

// readBootConfig reads the config that this process is started with: later changes of
// server.bind, server.provider and cluster require a restart.
func (s *Server) readBootConfig(ctx context.Context) error {
	static, err := s.static.Read(ctx)
	if err != nil {
		return err
	}
	s.boot = static.Shard()
	s.latest.Store(s.boot)
	s.addresses.bind = over(s.boot.Server.Bind, s.cfg.Bind)
	return s.addresses.resolve(ctx, s.cfg, s.boot)
}

// readConcurrency bounds the concurrent reads of records at a cold start.
const readConcurrency = 64

func (s *Server) openLedger(ctx context.Context) (err error) {
	if s.ledger == nil { // otherwise an earlier attempt opened it, and what it read is kept
		s.ledger, err = ledger.Open(ledger.Config{
			Store: s.store, Shard: s.cfg.Shard, Writer: s.holder,
			CachePath: s.cfg.cachePath(), Concurrency: readConcurrency, Logger: s.cfg.Logger, Now: s.cfg.Now,
		})
		if err != nil {
			return fmt.Errorf("open the ledger: %w", err)
		}
	}
	_, err = s.ledger.Load(ctx)
	return err
}

// cachePath returns the file that caches records; empty if there is none.
func (c Config) cachePath() string {
	if c.CacheDir == "" {
		return ""
	}
	return filepath.Join(c.CacheDir, "db", "nstance.db")
}

// openServices opens the listeners, the elector and the services, without starting them: the
// ports to advertise are known only now. An address that can't be opened is fatal, because
// another process uses it.
func (s *Server) openServices(ctx context.Context) error {
	listeners, err := s.listen(ctx)
	if err != nil {
		return fatal{err}
	}
	if err := s.useListeners(ctx, listeners); err != nil {
		listeners.close()
		return err
	}
	return nil
}

func (s *Server) useListeners(ctx context.Context, listeners *listeners) (err error) {
	if err := s.health.move(ctx, s.addresses.bind.Health); err != nil {
		return fatal{err}
	}
	if err := s.metrics.open(ctx, "server.bind.metrics_addr", s.addresses.bind.Metrics); err != nil {
		return fatal{err}
	}
	s.addresses.bind = listeners.endpoints(s.health.addr)
	if err := s.addresses.resolve(ctx, s.cfg, s.boot); err != nil {
		return err
	}
	if err := s.openElector(); err != nil {
		return err
	}
	s.services, err = s.newServices(listeners)
	return err
}
