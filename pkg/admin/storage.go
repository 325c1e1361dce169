package admin

import (
	"context"
	"io"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// CheckStorage checks whether a store meets Nstance's requirements, as each server does at
// startup, and whether it has, and keeps, what servers start from. The store may be empty. It
// returns the findings also with an error, which is the first failure.
func CheckStorage(
	ctx context.Context, c StorageConfig, getenv func(string) string, now time.Time, random io.Reader,
) ([]object.Finding, error) {
	store, err := c.openExisting(getenv)
	if err != nil {
		return nil, err
	}
	findings, err := examine(ctx, store, now, random)
	if err != nil {
		return findings, err
	}
	findings = append(findings, checkContents(ctx, store)...)
	return findings, firstFailure(findings)
}

// examine checks whether a store meets the requirements.
func examine(ctx context.Context, store object.Store, now time.Time, random io.Reader) ([]object.Finding, error) {
	id, err := fleet.NewID("prb", now, random)
	if err != nil {
		return nil, err
	}
	findings := object.Examine(ctx, store, string(id))
	return findings, firstFailure(findings)
}

func firstFailure(findings []object.Finding) error {
	for _, f := range findings {
		if f.Err != nil {
			return f.Err
		}
	}
	return nil
}
