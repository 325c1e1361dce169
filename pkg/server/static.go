package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
)

// acceptedConfig is a static config that can run, and where it came from.
type acceptedConfig struct {
	shard *config.Shard
	body  []byte
	info  object.Info // of config/
	// restart names the fields of the text in which shard is not what the text
	// says, because this process goes on with the values that it was started on.
	restart []string
	// recorded: applied/ is known to hold it, by a write of this term.
	recorded bool
	// fromApplied: config/ is not valid, for the reasons in problems, and the last
	// config that the shard accepted runs instead. A server that fell back to
	// anything older would rotate the whole fleet.
	fromApplied bool
	problems    config.Problems
}

// static is the config that a term runs. It is swapped as a whole, and what it
// points to never changes. Safe for concurrent use.
type static struct {
	running atomic.Pointer[acceptedConfig]
}

func (s *static) now() acceptedConfig      { return *s.running.Load() }
func (s *static) shard() *config.Shard     { return s.running.Load().shard }
func (s *static) swap(next acceptedConfig) { s.running.Store(&next) }

// unrecord notes that applied/ may hold another config than the one that runs from
// here on, until one is swapped in that is recorded: if that never comes about,
// whoever finds config/ as it runs now has to record it again.
func (s *static) unrecord() {
	now := s.now()
	now.recorded = false
	s.swap(now)
}

// appliedConfig is the last config that the shard accepted.
type appliedConfig struct {
	shard  *config.Shard // nil: there is none, or none that can be read
	body   []byte        // without the header
	header config.Header
	etag   object.ETag // empty: there is none
	err    error       // why shard is nil
}

func configKey(shard string) string  { return "config/" + shard + ".jsonc" }
func appliedKey(shard string) string { return "applied/" + shard + ".jsonc" }

// readConfig reads the shard's static config, or the last accepted one when that
// is missing or not valid.
func (s *Server) readConfig(ctx context.Context) (acceptedConfig, error) {
	o, err := s.store.Get(ctx, configKey(s.cfg.Shard))
	switch {
	case errors.Is(err, object.ErrNotFound):
		err = s.noConfig()
	case err != nil:
		return acceptedConfig{}, fmt.Errorf("read config: %w", err)
	default:
		var shard *config.Shard
		if shard, err = s.parse(o.Body); err == nil {
			return acceptedConfig{shard: shard, body: o.Body, info: o.Info}, nil
		}
		err = fmt.Errorf("%s is not valid: %w", configKey(s.cfg.Shard), err)
	}
	last, readErr := s.readApplied(ctx)
	switch {
	case readErr != nil:
		return acceptedConfig{}, errors.Join(err, readErr)
	case last.etag == "":
		return acceptedConfig{}, err
	case last.shard == nil:
		return acceptedConfig{}, fmt.Errorf("%w; nor is the last accepted one, %s: %w", err, appliedKey(s.cfg.Shard), last.err)
	}
	s.cfg.Logger.Error("the shard's config can't run, the last accepted one does", slog.Any("error", err))
	return acceptedConfig{shard: last.shard, body: last.body, info: o.Info, fromApplied: true, problems: problemsOf(err)}, nil
}

func (s *Server) noConfig() error {
	return config.Problems{{Message: fmt.Sprintf("no config for this shard: put one at %s in the bucket", configKey(s.cfg.Shard))}}
}

// parse reads and checks a static config as a person wrote it.
func (s *Server) parse(body []byte) (*config.Shard, error) { return s.check(config.Parse(body)) }

// check adds to what Parse says of a static config what it can't know. The error
// lists everything that is wrong, as Problems.
func (s *Server) check(shard *config.Shard, err error) (*config.Shard, error) {
	if err != nil {
		return nil, err
	}
	if s.cfg.OpenProvider == nil {
		if err := checkProvider(shard.Server.Provider).Err(); err != nil {
			return nil, err
		}
	}
	return shard, nil
}

func problemsOf(err error) config.Problems {
	var problems config.Problems
	if errors.As(err, &problems) {
		return problems
	}
	return config.Problems{{Message: err.Error()}}
}

// readApplied reads the last config that the shard accepted, if there is one.
func (s *Server) readApplied(ctx context.Context) (appliedConfig, error) {
	o, err := s.store.Get(ctx, appliedKey(s.cfg.Shard))
	if errors.Is(err, object.ErrNotFound) {
		return appliedConfig{}, nil
	}
	if err != nil {
		return appliedConfig{}, fmt.Errorf("read the last accepted config: %w", err)
	}
	last := appliedConfig{body: o.Body, etag: o.ETag}
	header, body, err := config.CutHeader(o.Body)
	if err == nil {
		err = readable(o.Key, header, s.epoch.Load())
	}
	if last.err = err; err == nil {
		last.header, last.body = header, body
		last.shard, last.err = s.check(config.ParseAccepted(body))
	}
	return last, nil
}

// recordApplied keeps a newly accepted config in place of last, for the next
// leader that finds an invalid one. Nothing is written when this term has written
// the same; another's word is not enough, because what that term sent before may
// still be under way.
func (t *term) recordApplied(ctx context.Context, c acceptedConfig, last appliedConfig) error {
	if t.applied.proven && bytes.Equal(last.body, c.body) {
		return nil
	}
	over, body := t.applied.over(), config.WithHeader(t.applied.next(), c.body)
	err := t.fence.Act(ctx, func(ctx context.Context) error {
		etag, err := object.Settle(ctx, t.server.store, t.applied.key, body, over)
		if err == nil {
			t.applied.landed(etag)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("keep the accepted config: %w", err)
	}
	return nil
}
