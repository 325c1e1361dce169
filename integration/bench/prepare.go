package main

import (
	"context"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server"
)

// prepare puts a shard's config into a store, and picks addresses for a server
// of it.
func prepare(ctx context.Context, store object.Store, s shard) (server.Endpoints, error) {
	objects, err := s.objects(nil)
	if err != nil {
		return server.Endpoints{}, err
	}
	if err := fill(ctx, store, objects); err != nil {
		return server.Endpoints{}, err
	}
	return freeEndpoints(ctx)
}
