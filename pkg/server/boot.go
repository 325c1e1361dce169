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

// bootUntilReady boots, again and again if need be, in the same process: a
// restart loop would only burn object-storage requests. The reason for waiting
// stands in the log; the health endpoint's answer names the part that it is about.
// Only what no retry can mend is returned.
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

// partAndReason is what the health endpoint shows of an error: the part, and what the
// store lacks or answers. Neither says anything that only insiders may know.
func partAndReason(err error) string {
	text := leader.PartOf(err)
	if reason := object.Reason(err); reason != "" {
		text += ": " + reason
	}
	return text
}

// fatal is an error that a retry would not mend.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// bootOnce goes through the boot sequence. While it is at it the health
// endpoint says at what, and what the attempt before failed at, so that a store
// which swallows requests is named rather than waited for in silence.
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
			doing += "; not ready in the attempt before: " + partAndReason(last)
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

// readBootConfig reads the config that this process runs on: what changes later
// under server.bind, server.provider and cluster takes a restart.
func (s *Server) readBootConfig(ctx context.Context) error {
	static, err := s.static.Read(ctx)
	if err != nil {
		return err
	}
	s.boot = static.Shard()
	s.latest.Store(s.boot)
	for _, field := range leader.Ineffective(s.boot) {
		s.cfg.Logger.Warn("a part of the config has no effect in this version", slog.String("field", field))
	}
	s.addresses.bind = over(s.boot.Server.Bind, s.cfg.Bind)
	return s.addresses.settle(ctx, s.cfg, s.boot)
}

// readConcurrency bounds the reads of records under way at a cold start.
const readConcurrency = 64

func (s *Server) openLedger(ctx context.Context) (err error) {
	if s.ledger == nil { // else an attempt before opened it: what it has read it keeps
		s.ledger, err = ledger.Open(ledger.Config{
			Store: s.store, Shard: s.cfg.Shard, Writer: s.holder,
			CachePath: s.cfg.cachePath(), Concurrency: readConcurrency, Logger: s.cfg.Logger,
		})
		if err != nil {
			return fmt.Errorf("open the ledger: %w", err)
		}
	}
	_, err = s.ledger.Load(ctx)
	return err
}

// cachePath is the file that records are cached in; empty: none.
func (c Config) cachePath() string {
	if c.CacheDir == "" {
		return ""
	}
	return filepath.Join(c.CacheDir, "db", "nstance.db")
}

// openServices opens the addresses, campaigns for nothing yet, and serves
// nothing yet: only now the ports are known that others are to be told of. An
// address that can't be had is fatal, because somebody else has it.
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
	s.addresses.bind = listeners.endpoints(s.health.addr)
	if err := s.addresses.settle(ctx, s.cfg, s.boot); err != nil {
		return err
	}
	if err := s.openElector(); err != nil {
		return err
	}
	s.services, err = s.newServices(listeners)
	return err
}
