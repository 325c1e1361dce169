package server

import (
	"context"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/bucket"
	"github.com/nstance/nstance/pkg/secrets"
)

// openStore opens the bucket that the flags name. It sends nothing yet.
func openStore(cfg Config) (object.Store, error) {
	if cfg.Store != nil {
		return cfg.Store, nil
	}
	return bucket.Open(cfg.StorageProvider, cfg.StorageBucket, cfg.Getenv)
}

// openSecrets opens the cluster's secrets as its config says.
func openSecrets(ctx context.Context, c config.Secrets, store object.Store, cfg Config) (secrets.Secrets, error) {
	out := secrets.Config{
		Provider: c.Provider, Prefix: c.Prefix, Key: secrets.KeySource(c.EncryptionKey),
		Store: store, Random: cfg.Random, Sources: secrets.LocalSources(cfg.Getenv),
	}
	for _, k := range c.OldEncryptionKeys {
		out.OldKeys = append(out.OldKeys, secrets.KeySource(k))
	}
	return secrets.Open(ctx, out)
}
