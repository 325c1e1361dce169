package shardtest

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// patience is the timeout of an operator's call, including retries.
const patience = 20 * time.Second

// callOutcome is the outcome of a call as its caller knows it.
type callOutcome int

const (
	done    callOutcome = iota
	refused             // definitely had no effect
	unknown             // may have had, or may still have, an effect
	missing             // refused because the named object does not exist
)

// schedule queues a call of the operator. told is its text in the timeline; after is called
// with its outcome.
func (s *Shard) schedule(
	told string, patience time.Duration, do func(context.Context, nstancev1.OperatorServiceClient) error, after func(callOutcome),
) {
	s.operator.queue(func() {
		attempts := 0
		_, err := call(s.operator, patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) (struct{}, error) {
			attempts++
			return struct{}{}, do(ctx, c)
		})
		became := judge(err, attempts)
		switch {
		case became == done:
			s.Timeline.Say("operator", "%s: done", told)
		case status.Code(err) == codes.Unknown: // no answer to a call
			s.Timeline.Say("operator", "%s: %v", told, err)
		default:
			s.Timeline.Say("operator", "%s: %s, %s", told, status.Code(err), status.Convert(err).Message())
		}
		if after != nil {
			after(became)
		}
	})
}

// judge returns the outcome after an error. An earlier attempt may have had an effect,
// whatever the error of the last one.
func judge(err error, attempts int) callOutcome {
	switch status.Code(err) {
	case codes.OK:
		return done
	case codes.NotFound: // applies to earlier attempts too
		return missing
	case codes.InvalidArgument, codes.AlreadyExists, codes.FailedPrecondition, codes.PermissionDenied, codes.Unimplemented:
		if attempts == 1 {
			return refused
		}
		return unknown
	default:
		return unknown
	}
}

func doRefresh(s *Shard, _ args) error {
	s.refresh(patience, true)
	return nil
}

// doRefreshUnconfirmed refreshes the config without confirming removals of groups.
func doRefreshUnconfirmed(s *Shard, _ args) error {
	s.refresh(patience, false)
	return nil
}

// refresh makes the leader read the config again. If confirmed, it accepts the removals that
// the refusal names.
func (s *Shard) refresh(patience time.Duration, confirmed bool) {
	var accepted []string
	s.schedule("refresh config", patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
		_, err := c.RefreshConfig(ctx, &nstancev1.RefreshConfigRequest{AcceptRemovals: accepted})
		for tries := 0; confirmed && tries < 3 && len(rpc.Failures(err)) > 0; tries++ {
			accepted = nil
			for _, f := range rpc.Failures(err) {
				if f.Type != rpc.GroupKept {
					accepted = append(accepted, f.Subject)
				}
			}
			s.book.shrinks.accepts(accepted)
			_, err = c.RefreshConfig(ctx, &nstancev1.RefreshConfigRequest{AcceptRemovals: accepted})
		}
		return err
	}, nil)
}

func doScale(s *Shard, a args) error {
	s.upsert(fmt.Sprintf("scale %s to %d", a.words[0], a.count), a, &nstancev1.UpsertGroupRequest{})
	return nil
}

func doScaleRemove(s *Shard, a args) error {
	m, err := s.pick(a.words[1])
	if err != nil {
		return err
	}
	s.upsert(fmt.Sprintf("scale %s to %d without %s", a.words[0], a.count, m.vm.ID), a,
		&nstancev1.UpsertGroupRequest{Remove: []string{string(m.vm.ID)}})
	return nil
}

func doGroup(s *Shard, a args) error {
	template := "knd"
	s.upsert(fmt.Sprintf("make group %s of %d", a.words[0], a.count), a, &nstancev1.UpsertGroupRequest{Template: &template})
	return nil
}

func (s *Shard) upsert(told string, a args, r *nstancev1.UpsertGroupRequest) {
	size := int32(a.count)
	r.Key, r.Size = a.words[0], &size
	became := a.count
	s.schedule(told, patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
		s.book.shrinks.asks(defaultGroup(r.GetKey()))
		answer, err := c.UpsertGroup(ctx, r)
		if err == nil && len(r.GetRemove()) > 0 { // a size that named instances make smaller counts only those that are left
			became = int(answer.GetGroup().GetSize())
		}
		return err
	}, func(o callOutcome) {
		if o == missing && len(r.GetRemove()) > 0 {
			o = refused // the instance may not exist
		}
		s.book.promiseSize(defaultGroup(r.GetKey()), became, o)
	})
}

func doUngroup(s *Shard, a args) error {
	s.schedule("delete group "+a.words[0], patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
		s.book.shrinks.asks(defaultGroup(a.words[0]))
		_, err := c.DeleteGroup(ctx, &nstancev1.DeleteGroupRequest{Key: a.words[0]})
		return err
	}, func(o callOutcome) { s.book.promiseSize(defaultGroup(a.words[0]), absent, o) })
	return nil
}

func defaultGroup(name string) fleet.GroupKey {
	return fleet.GroupKey{Tenant: fleet.DefaultTenant, Name: name}
}

func doCreate(s *Shard, a args) error {
	var id string
	s.operator.queue(func() { s.book.wantKey(a.words[1]) })
	told := fmt.Sprintf("create an instance of %s for key %s", a.words[0], a.words[1])
	s.schedule(told, patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
		answer, err := c.CreateInstance(ctx, &nstancev1.CreateInstanceRequest{Group: a.words[0], IdempotencyKey: a.words[1]})
		id = answer.GetInstance().GetId()
		return err
	}, func(o callOutcome) {
		if o == done {
			s.book.promiseInstance(a.words[1], fleet.InstanceID(id))
		}
	})
	return nil
}

func doDelete(s *Shard, a args) error {
	m, err := s.pick(a.words[0])
	if err != nil {
		return err
	}
	s.remove(fmt.Sprintf("delete instance %s", m.vm.ID), "", m.vm.ID,
		&nstancev1.DeleteInstanceRequest{Target: &nstancev1.DeleteInstanceRequest_Id{Id: string(m.vm.ID)}})
	return nil
}

func doDeleteKey(s *Shard, a args) error {
	s.remove("delete the instance of key "+a.words[0], a.words[0], s.book.instanceOf(a.words[0]),
		&nstancev1.DeleteInstanceRequest{Target: &nstancev1.DeleteInstanceRequest_IdempotencyKey{IdempotencyKey: a.words[0]}})
	return nil
}

func (s *Shard) remove(told, key string, id fleet.InstanceID, r *nstancev1.DeleteInstanceRequest) {
	s.schedule(told, patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
		_, err := c.DeleteInstance(ctx, r)
		return err
	}, func(o callOutcome) {
		switch {
		case o == missing:
			s.book.promiseAbsence(key, id)
		case o == done && id != "":
			s.book.promiseRemoval(id)
		}
	})
}

// doAck acknowledges every instance that is draining now.
func doAck(s *Shard, _ args) error {
	for _, i := range s.book.instances() {
		if i.Phase != fleet.Draining || i.Drain == nil || i.Drain.AckedAt != nil {
			continue
		}
		noteAck(s.book, i.ID)
		s.schedule(fmt.Sprintf("acknowledge %s", i.ID), patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
			_, err := c.AcknowledgeDrained(ctx, &nstancev1.AcknowledgeDrainedRequest{Id: string(i.ID)})
			return err
		}, func(o callOutcome) {
			if o == done {
				s.book.promiseAck(i.ID)
			}
		})
	}
	return nil
}
