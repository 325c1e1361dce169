package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/election"
	"github.com/nstance/nstance/pkg/object"
)

// acceptedConfig is a static config that can run, and where it came from.
type acceptedConfig struct {
	shard *config.Shard
	body  []byte
	info  object.Info // of config/
	// fromApplied: config/ is not valid, for the reasons in problems, and the last
	// config that the shard accepted runs instead. A server that fell back to
	// anything older would rotate the whole fleet.
	fromApplied bool
	problems    config.Problems
}

// appliedConfig is the last config that the shard accepted.
type appliedConfig struct {
	shard *config.Shard // nil: there is none, or none that can be read
	body  []byte
	etag  object.ETag // empty: there is none
	err   error       // why shard is nil
}

func configKey(shard string) string  { return "config/" + shard + ".jsonc" }
func appliedKey(shard string) string { return "applied/" + shard + ".jsonc" }

// readConfig reads the shard's static config, or the last accepted one when that
// is missing or not valid.
func (s *Server) readConfig(ctx context.Context) (acceptedConfig, error) {
	o, err := s.store.Get(ctx, configKey(s.cfg.Shard))
	switch {
	case errors.Is(err, object.ErrNotFound):
		err = config.Problems{{Message: fmt.Sprintf("no config for this shard: put one at %s in the bucket", configKey(s.cfg.Shard))}}
	case err != nil:
		return acceptedConfig{}, fmt.Errorf("read config: %w", err)
	default:
		var shard *config.Shard
		if shard, err = config.Parse(o.Body); err == nil {
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

// restartFields names what differs between the config that a process was started
// on and another one, and can't be changed while it runs.
func restartFields(boot, now *config.Shard) []string {
	var fields []string
	for _, f := range []struct {
		name      string
		boot, now any
	}{
		{"cluster.id", boot.Cluster.ID, now.Cluster.ID},
		{"cluster.secrets", boot.Cluster.Secrets, now.Cluster.Secrets},
		{"server.provider", boot.Server.Provider, now.Server.Provider},
		{"server.bind", boot.Server.Bind, now.Server.Bind},
	} {
		if !reflect.DeepEqual(f.boot, f.now) {
			fields = append(fields, f.name)
		}
	}
	return fields
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
	shard, err := config.Parse(o.Body)
	return appliedConfig{shard: shard, body: o.Body, etag: o.ETag, err: err}, nil
}

// recordApplied keeps a newly accepted config in place of last, for the next
// leader that finds an invalid one.
func (s *Server) recordApplied(ctx context.Context, c acceptedConfig, last appliedConfig, fence *election.Term) error {
	if bytes.Equal(last.body, c.body) && last.etag != "" {
		return nil
	}
	pre := object.IfAbsent()
	if last.etag != "" {
		pre = object.IfMatch(last.etag)
	}
	err := fence.Act(ctx, func(ctx context.Context) error {
		_, err := object.Settle(ctx, s.store, appliedKey(s.cfg.Shard), c.body, pre)
		return err
	})
	if err != nil {
		return fmt.Errorf("keep the accepted config: %w", err)
	}
	return nil
}
