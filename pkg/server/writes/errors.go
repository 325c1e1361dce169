package writes

import (
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// ErrNoTerm is the error of calls that arrive while this server is not the leader.
func ErrNoTerm() error {
	return rpc.Unavailable.Errorf("this server is no longer the leader of its shard: try again")
}

// Kind maps an error of the ledger or the election to one of package rpc. An error that has a
// kind already keeps it.
func Kind(err error) error {
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
		return rpc.Conflict.Errorf("changed by a concurrent write: try again: %w", err)
	case errors.Is(err, object.ErrRefused) && errors.Is(err, object.ErrUnknown):
		return rpc.Unavailable.Errorf("fix the cause, then try again: %w", err)
	case errors.Is(err, object.ErrRefused):
		return rpc.Unavailable.Errorf("nothing was changed: fix the cause, then try again: %w", err)
	case errors.Is(err, ledger.ErrUnknown), errors.Is(err, election.ErrUnfenced):
		return rpc.Unavailable.Errorf("object storage does not respond, so the outcome is unknown: try again: %w", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		return fmt.Errorf("shard: %w", err)
	}
}

// Violations returns the problems of a config as violations of a request.
func Violations(problems config.Problems) []rpc.Violation {
	out := make([]rpc.Violation, 0, len(problems))
	for _, p := range problems {
		out = append(out, rpc.Violation{Field: p.Path, Description: p.Message})
	}
	return out
}
