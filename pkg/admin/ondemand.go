package admin

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// CreateInstance creates an on-demand instance in one shard. The idempotency key is required:
// a retry with the same key returns the same instance.
func (c *Client) CreateInstance(ctx context.Context, shard client.Shard, req *nstancev1.CreateInstanceRequest) (Instance, error) {
	if req.GetIdempotencyKey() == "" {
		return Instance{}, errors.New("create an instance: an idempotency key is required, or a retry could create two")
	}
	return client.Call(ctx, c.api, shard, func(ctx context.Context, s client.Service) (Instance, error) {
		resp, err := s.CreateInstance(ctx, req)
		return Instance{shard.ID, resp.GetInstance()}, err
	})
}

// DeleteInstance deletes an on-demand instance, or replaces a managed one, in whichever shard
// has it, and returns that shard. It is idempotent.
func (c *Client) DeleteInstance(ctx context.Context, shards []client.Shard, id string) (string, error) {
	return c.wherever(ctx, shards, func(ctx context.Context, s client.Service) error {
		_, err := s.DeleteInstance(ctx, &nstancev1.DeleteInstanceRequest{Target: &nstancev1.DeleteInstanceRequest_Id{Id: id}})
		return err
	})
}

// DeleteInstanceByKey deletes the on-demand instance created with an idempotency key, in
// whichever shard has it, and returns that shard.
func (c *Client) DeleteInstanceByKey(ctx context.Context, shards []client.Shard, key string) (string, error) {
	return c.wherever(ctx, shards, func(ctx context.Context, s client.Service) error {
		target := &nstancev1.DeleteInstanceRequest_IdempotencyKey{IdempotencyKey: key}
		_, err := s.DeleteInstance(ctx, &nstancev1.DeleteInstanceRequest{Target: target})
		return err
	})
}

// AcknowledgeDrained acknowledges that a draining instance is empty, so that it is deleted at
// once, in whichever shard has it. It returns that shard, and is idempotent.
func (c *Client) AcknowledgeDrained(ctx context.Context, shards []client.Shard, id string) (string, error) {
	return c.wherever(ctx, shards, func(ctx context.Context, s client.Service) error {
		_, err := s.AcknowledgeDrained(ctx, &nstancev1.AcknowledgeDrainedRequest{Id: id})
		return err
	})
}

// wherever makes a call that only one of the shards can serve to all of them, and returns when
// one succeeds. Its error is the most specific one: "not found" errors are dropped if there are
// others.
func (c *Client) wherever(ctx context.Context, shards []client.Shard, call func(context.Context, client.Service) error) (string, error) {
	ctx, found := context.WithCancel(ctx)
	defer found()
	done, err := each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (string, error) {
		err := call(ctx, s)
		if err == nil {
			found()
		}
		return shard, err
	})
	if len(done) > 0 {
		return done[0], nil
	}
	return "", telling(err)
}

// telling drops "not found" errors from joined errors, unless all of them are.
func telling(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(joined.Unwrap()), func(e error) bool { return status.Code(e) == codes.NotFound })
	if len(rest) == 0 {
		return err
	}
	return errors.Join(rest...)
}
