package leader

import (
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// ErrNoTerm is what callers are told when there is no term.
func ErrNoTerm() error {
	return rpc.Unavailable.Errorf("this server does not lead its shard any more: try again")
}

// kind turns an error of the ledger or the election into one of package rpc.
// One that has a kind already keeps it.
func kind(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(rpc.Kind)):
		return err
	case errors.Is(err, election.ErrNotLeader):
		return ErrNoTerm()
	case errors.Is(err, ledger.ErrNotFound):
		return rpc.NotFound.Errorf("no such instance: %w", err)
	case errors.Is(err, ledger.ErrConflict):
		return rpc.Conflict.Errorf("somebody else changed it first, try again: %w", err)
	case errors.Is(err, ledger.ErrUnknown), errors.Is(err, election.ErrUnfenced):
		return rpc.Unavailable.Errorf("object storage does not answer, so it is not known whether this was done: try again: %w", err)
	case errors.Is(err, object.ErrRefused):
		return rpc.Unavailable.Errorf("object storage refused it, and nothing was changed: try again once that is mended: %w", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		return fmt.Errorf("shard: %w", err)
	}
}
