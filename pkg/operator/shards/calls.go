package shards

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// callShard makes a call and records its result. Its error is a client.ShardError.
func callShard[T any](ctx context.Context, s *Set, m *memory, call func(context.Context, client.Service) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	shard, _, asked := m.shard()
	answer, err := client.Call(limited, s.cfg.Client, shard, call)
	if ctx.Err() == nil { // otherwise the caller gave up, which says nothing about the shard
		s.listeners.send(m.note(asked, err))
	}
	return answer, err
}

// change makes a mutating call. asked is the tick before it.
func change[T any](
	ctx context.Context, s *Set, shard string, call func(context.Context, client.Service) (T, error),
) (answer T, m *memory, asked uint64, err error) {
	if m = s.memory(shard); m == nil {
		err = fmt.Errorf("not configured (have: %s)", strings.Join(s.Names(), ", "))
		return answer, nil, 0, &client.ShardError{Shard: shard, Err: err}
	}
	_, _, asked = m.shard()
	answer, err = callShard(ctx, s, m, call)
	return answer, m, asked, err
}

// UpsertGroup changes a group; see OperatorService. Group returns the result from then on,
// until the stream reports something newer; if the order is unknown, the stream wins.
func (s *Set) UpsertGroup(ctx context.Context, shard string, r *nstancev1.UpsertGroupRequest) (*nstancev1.UpsertGroupResponse, error) {
	answer, m, asked, err := change(ctx, s, shard, func(ctx context.Context, s client.Service) (*nstancev1.UpsertGroupResponse, error) {
		return s.UpsertGroup(ctx, r)
	})
	if status.Code(err) == codes.Aborted && m != nil {
		m.wake() // our state of the group is stale
	}
	if err != nil {
		return nil, err
	}
	s.listeners.send(m.mergeGroup(answer.GetGroup(), asked))
	return answer, nil
}

// DeleteGroup scales a group to zero and deletes it. NotFound is no error.
func (s *Set) DeleteGroup(ctx context.Context, shard, group, manager string) error {
	_, _, _, err := change(ctx, s, shard, func(ctx context.Context, s client.Service) (*nstancev1.DeleteGroupResponse, error) {
		return s.DeleteGroup(ctx, &nstancev1.DeleteGroupRequest{Key: group, Manager: manager})
	})
	return unlessGone(err)
}

// CreateInstance creates an on-demand instance. Instance returns it from then on.
func (s *Set) CreateInstance(ctx context.Context, shard string, r *nstancev1.CreateInstanceRequest) (*nstancev1.InstanceStatus, error) {
	answer, m, asked, err := change(ctx, s, shard, func(ctx context.Context, s client.Service) (*nstancev1.CreateInstanceResponse, error) {
		return s.CreateInstance(ctx, r)
	})
	if err != nil {
		return nil, err
	}
	s.listeners.send(m.mergeInstance(answer.GetInstance(), asked))
	return answer.GetInstance(), nil
}

// DeleteInstance deletes an instance by its ID. NotFound is no error.
func (s *Set) DeleteInstance(ctx context.Context, shard, id string) error {
	return s.deleteInstance(ctx, shard, &nstancev1.DeleteInstanceRequest{Target: &nstancev1.DeleteInstanceRequest_Id{Id: id}})
}

// DeleteInstanceByKey deletes an on-demand instance by its idempotency key. NotFound is no
// error.
func (s *Set) DeleteInstanceByKey(ctx context.Context, shard, key string) error {
	target := &nstancev1.DeleteInstanceRequest_IdempotencyKey{IdempotencyKey: key}
	return s.deleteInstance(ctx, shard, &nstancev1.DeleteInstanceRequest{Target: target})
}

func (s *Set) deleteInstance(ctx context.Context, shard string, r *nstancev1.DeleteInstanceRequest) error {
	_, _, _, err := change(ctx, s, shard, func(ctx context.Context, s client.Service) (*nstancev1.DeleteInstanceResponse, error) {
		return s.DeleteInstance(ctx, r)
	})
	return unlessGone(err)
}

// AcknowledgeDrained tells the shard that a draining instance's node is empty. An unknown
// instance is NOT_FOUND.
func (s *Set) AcknowledgeDrained(ctx context.Context, shard, id string) error {
	_, _, _, err := change(ctx, s, shard, func(ctx context.Context, s client.Service) (*nstancev1.AcknowledgeDrainedResponse, error) {
		return s.AcknowledgeDrained(ctx, &nstancev1.AcknowledgeDrainedRequest{Id: id})
	})
	return err
}

func unlessGone(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}
