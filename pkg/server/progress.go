package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server/election"
)

// accounted is the store with each read noted, so that a leader for whom nothing
// can be read is found out. Writes are not: the election's own, which every act
// needs, tell of them.
type accounted struct {
	object.Store
	needs *election.Needs
}

var _ object.Store = accounted{}

// Get implements object.Store.
func (s accounted) Get(ctx context.Context, key string) (object.Object, error) {
	try, began := s.needs.Begin(election.NeedRead), time.Now()
	o, err := s.Store.Get(ctx, key)
	ended(ctx, try, began, err)
	return o, err
}

// List implements object.Store.
func (s accounted) List(ctx context.Context, prefix, token string) (object.Page, error) {
	try, began := s.needs.Begin(election.NeedRead), time.Now()
	p, err := s.Store.List(ctx, prefix, token)
	ended(ctx, try, began, err)
	return p, err
}

// patience is how long the store is given for a read before the end of the time that
// its caller had says something about the store.
const patience = 5 * time.Second

// ended notes how a read ended. That there is no such object is an answer.
func ended(ctx context.Context, try *election.Attempt, began time.Time, err error) {
	switch {
	case err == nil, errors.Is(err, object.ErrNotFound):
		try.End(nil)
	case errors.Is(ctx.Err(), context.Canceled), ctx.Err() != nil && time.Since(began) < patience:
		try.End(context.Canceled) // a store may not say so itself
	default:
		try.End(err)
	}
}

// listing is what the loop tells of its lists.
func (s *Server) listing() (page func(), ended func(error)) {
	try := s.needs.Begin(election.NeedList)
	return try.Progress, try.End
}

// couldLead does what a leader must be able to do and the election does not: it
// reads the config, the groups and the records, and lists the provider's VMs once.
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
