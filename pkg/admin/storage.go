package admin

import (
	"context"
	"io"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// CheckStorage checks whether a store meets Nstance's requirements, as each server does at
// startup. The store may be empty. It returns the findings also with an error, which is the
// first failure.
func CheckStorage(
	ctx context.Context, c StorageConfig, getenv func(string) string, now time.Time, random io.Reader,
) ([]object.Finding, error) {
	store, err := c.openExisting(getenv)
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
