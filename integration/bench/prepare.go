package main

import (
	"context"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server"
)

// prepare stores a shard's config and the operator's record, and picks addresses for a server.
func prepare(ctx context.Context, store object.Store, s shard) (server.Endpoints, error) {
	objects, err := s.objects(nil)
	if err != nil {
		return server.Endpoints{}, err
	}
	if err := fill(ctx, store, objects); err != nil {
		return server.Endpoints{}, err
	}
	cluster, err := trust(ctx, store)
	if err != nil {
		return server.Endpoints{}, err
	}
	if err := recordOperator(ctx, store, cluster.CA); err != nil {
		return server.Endpoints{}, err
	}
	return freeEndpoints(ctx)
}
