package server

import (
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
func openSecrets(c config.Secrets, store object.Store, cfg Config) (secrets.Secrets, error) {
	out := secrets.Config{
		Provider: c.Provider, Prefix: c.Prefix, Key: secrets.KeySource(c.EncryptionKey),
		Store: store, Random: cfg.Random,
		LookupEnv: func(name string) (string, bool) { v := cfg.Getenv(name); return v, v != "" },
	}
	for _, k := range c.OldEncryptionKeys {
		out.OldKeys = append(out.OldKeys, secrets.KeySource(k))
	}
	return secrets.Open(out)
}
