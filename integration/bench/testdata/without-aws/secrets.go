// Package aws replaces pkg/secrets/aws in a server without AWS: see withoutAWS.
package aws

import (
	"context"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/secrets"
)

func Open(ctx context.Context, cfg secrets.Config, getenv func(string) string, _ awsclient.Config) (secrets.Secrets, error) {
	cfg.Sources = secrets.LocalSources(getenv)
	return secrets.Open(ctx, cfg)
}
