package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// NewInstance asks for an on-demand instance.
type NewInstance struct {
	Group string
	// Key is the idempotency key: asking again with it, however the first answer
	// got lost, names the same instance. Required.
	Key          string
	InstanceType string // empty: the group's
	Vars         map[string]any
}

// CreateInstance makes an on-demand instance in one shard.
func (c *Client) CreateInstance(ctx context.Context, shard client.Shard, n NewInstance) (Instance, error) {
	req := &nstancev1.CreateInstanceRequest{Group: n.Group, IdempotencyKey: n.Key}
	if n.Key == "" {
		return Instance{}, errors.New("create an instance: without an idempotency key a lost answer could mean two")
	}
	if n.InstanceType != "" {
		req.InstanceType = &n.InstanceType
	}
	if n.Vars != nil {
		vars, err := structpb.NewStruct(n.Vars)
		if err != nil {
			return Instance{}, fmt.Errorf("vars: %w", err)
		}
		req.Vars = vars
	}
	return client.Call(ctx, c.api, shard, func(ctx context.Context, s client.Service) (Instance, error) {
		resp, err := s.CreateInstance(ctx, req)
		if err != nil {
			return Instance{}, err
		}
		return instance(shard.ID, resp.GetInstance()), nil
	})
}

// DeleteInstance removes an on-demand instance, and has a managed one replaced,
// in whichever of the shards has it, which it returns. Repeating does no harm.
func (c *Client) DeleteInstance(ctx context.Context, shards []client.Shard, id string) (string, error) {
	return c.wherever(ctx, shards, func(ctx context.Context, s client.Service) error {
		_, err := s.DeleteInstance(ctx, &nstancev1.DeleteInstanceRequest{Target: &nstancev1.DeleteInstanceRequest_Id{Id: id}})
		return err
	})
}

// DeleteInstanceByKey removes the on-demand instance that was created with an
// idempotency key, in whichever of the shards has it, which it returns.
func (c *Client) DeleteInstanceByKey(ctx context.Context, shards []client.Shard, key string) (string, error) {
	return c.wherever(ctx, shards, func(ctx context.Context, s client.Service) error {
		target := &nstancev1.DeleteInstanceRequest_IdempotencyKey{IdempotencyKey: key}
		_, err := s.DeleteInstance(ctx, &nstancev1.DeleteInstanceRequest{Target: target})
		return err
	})
}

// AcknowledgeDrained says that nothing is left on a draining instance, which then
// goes at once, to whichever of the shards has it. Repeating does no harm.
func (c *Client) AcknowledgeDrained(ctx context.Context, shards []client.Shard, id string) (string, error) {
	return c.wherever(ctx, shards, func(ctx context.Context, s client.Service) error {
		_, err := s.AcknowledgeDrained(ctx, &nstancev1.AcknowledgeDrainedRequest{Id: id})
		return err
	})
}

// wherever makes a call that only one of the shards can serve, to all of them,
// without waiting for the others once one has. Its error is that of the shard
// which knows best: any other than "not found", if there is one.
func (c *Client) wherever(ctx context.Context, shards []client.Shard, call func(context.Context, client.Service) error) (string, error) {
	ctx, found := context.WithCancel(ctx)
	defer found()
	done, err := client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]string, error) {
		if err := call(ctx, s); err != nil {
			return nil, err
		}
		found()
		return []string{shard}, nil
	})
	if len(done) > 0 {
		return done[0], nil
	}
	return "", telling(err)
}

// telling drops the shards that only say "not found" from joined errors, unless
// all of them do.
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
