package server

import (
	"context"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/bucket"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/aws"
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
