package admin

import (
	"context"
	"io"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// CheckStorage checks whether a store does what Nstance needs, as each server does when
// it starts. Nothing needs to be in it. The error is the first failure, if there is one;
// the findings are there beside it.
func CheckStorage(
	ctx context.Context, c StorageConfig, getenv func(string) string, now time.Time, random io.Reader,
) ([]object.Finding, error) {
	store, err := c.open(getenv)
	if err != nil {
		return nil, err
	}
	id, err := fleet.NewID("prb", now, random)
	if err != nil {
		return nil, err
	}
	findings := object.Examine(ctx, store, string(id))
	for _, f := range findings {
		if f.Err != nil {
			return findings, f.Err
		}
	}
	return findings, nil
}
