package server

import (
	"context"
	"log/slog"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/bucket"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/aws"
	"github.com/nstance/nstance/pkg/server/leader"
	"github.com/nstance/nstance/pkg/server/outage"
)

// openStore opens the bucket of the flags. It sends no request yet.
func openStore(cfg Config) (object.Store, error) {
	if cfg.Store != nil {
		return cfg.Store, nil
	}
	getenv := cfg.Getenv
	if cfg.InsecureStorage {
		getenv = awsclient.WithInsecure(getenv)
	}
	return bucket.Open(cfg.StorageProvider, cfg.StorageBucket, getenv, nil)
}

// writesTo returns a probe that writes an object and removes it again.
func writesTo(store object.Store, key string) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := store.Put(ctx, key, []byte("probe"), object.Precondition{}); err != nil {
			return err
		}
		_ = store.Delete(ctx, key) // what is left below probe/ affects nothing
		return nil
	}
}

// reportOutages reports when object storage takes no more writes, and when it does again, until ctx
// ends.
func (s *Server) reportOutages(ctx context.Context) {
	for told := (outage.Outage{}); ; {
		select {
		case <-ctx.Done():
			return
		case <-s.outage.Changed():
		}
		led, now := s.reportOutage()
		switch {
		case now.Lasts() && !led:
			s.cfg.Logger.Warn("problem", slog.String("reason", leader.ReasonStorageUnreachable), slog.String("problem", now.String()))
		case told.Lasts() && !now.Lasts():
			s.cfg.Logger.Info("object storage takes writes again", slog.Duration("after", s.cfg.Now().Sub(told.Since)))
		}
		told = now
	}
}

// reportOutage tells the current term, if there is one, about the current outage, or that there is
// none any more.
func (s *Server) reportOutage() (led bool, now outage.Outage) {
	s.telling.Lock()
	defer s.telling.Unlock()
	now = s.outage.Current()
	t := s.current.Load()
	switch {
	case t == nil:
		return false, now
	case now.Lasts():
		t.Report(fleet.Problem{At: s.cfg.Now(), Reason: leader.ReasonStorageUnreachable, Message: now.String()})
	default:
		t.Over(leader.ReasonStorageUnreachable)
	}
	return true, now
}

// openSecrets opens the cluster's secrets as configured.
func openSecrets(ctx context.Context, shard *config.Shard, store object.Store, cfg Config) (secrets.Secrets, error) {
	c, calls := shard.Cluster.Secrets, cfg.AWS
	switch {
	case c.Region != "":
		calls.Region = c.Region
	case calls.Region == "" && shard.Server.Provider.Kind == config.ProviderAWS:
		calls.Region = shard.Server.Provider.Region
	}
	if cfg.InsecureStorage {
		calls.Getenv = awsclient.WithInsecure(calls.Getenv)
	}
	out := secrets.Config{
		Provider: c.Provider, Prefix: c.Prefix, Key: secrets.KeySource(c.EncryptionKey), Store: store, Random: cfg.Random,
	}
	for _, k := range c.OldEncryptionKeys {
		out.OldKeys = append(out.OldKeys, secrets.KeySource(k))
	}
	return aws.Open(ctx, out, cfg.Getenv, calls)
}
