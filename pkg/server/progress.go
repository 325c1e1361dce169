package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server/election"
)

// accounted is the store with each read recorded, so that a leader whose reads all fail is
// detected. Writes are not recorded: the election's own writes, which every action needs, cover
// them.
type accounted struct {
	object.Store
	needs *election.Needs
}

var _ object.Store = accounted{}

// Get implements object.Store.
func (s accounted) Get(ctx context.Context, key string) (object.Object, error) {
	try, began := s.needs.Start(election.NeedRead), time.Now()
	o, err := s.Store.Get(ctx, key)
	if errors.Is(err, object.ErrRefused) {
		try.End(context.Canceled)
		return o, err
	}
	ended(ctx, try, began, err)
	return o, err
}

// List implements object.Store.
func (s accounted) List(ctx context.Context, prefix, token string) (object.Page, error) {
	try, began := s.needs.Start(election.NeedRead), time.Now()
	p, err := s.Store.List(ctx, prefix, token)
	ended(ctx, try, began, err)
	return p, err
}

// patience is the minimum duration after which a read that ran into its caller's deadline
// counts as a failure of the store.
const patience = 5 * time.Second

// ended records the result of a read. ErrNotFound counts as success. A refusal says nothing of
// other objects; a store that refuses all refuses the election's writes and the listings, too.
func ended(ctx context.Context, try *election.Attempt, began time.Time, err error) {
	switch {
	case err == nil, errors.Is(err, object.ErrNotFound):
		try.End(nil)
	case errors.Is(ctx.Err(), context.Canceled), ctx.Err() != nil && time.Since(began) < patience:
		try.End(context.Canceled) // the store may return another error
	default:
		try.End(err)
	}
}

// listing records the loop's listings of VMs.
func (s *Server) listing() (page func(), ended func(error)) {
	try := s.needs.Start(election.NeedList)
	return try.Progress, try.End
}

// couldLead does what a leader must be able to do apart from the election: it reads the
// config, the groups and the records, and lists the provider's VMs once.
func (s *Server) couldLead(ctx context.Context) error {
	if _, err := s.static.ReadFor(ctx, s.boot); err != nil {
		return err
	}
	if _, err := s.ledger.Load(ctx); err != nil {
		return err
	}
	if _, err := s.provider.List(ctx); err != nil {
		return fmt.Errorf("list the VMs: %w", err)
	}
	return nil
}
