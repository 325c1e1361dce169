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

// patience is how long an operator waits for an answer, with all repetitions.
const patience = 20 * time.Second

// outcome is what a caller knows of its call.
type outcome int

const (
	done    outcome = iota
	refused         // for certain it had no effect
	unknown         // it may have had one, or may still have
	missing         // refused, because there is nothing of that name: it does not come by itself
)

// ask has the operator make a call, once it has made those before. told is what
// the timeline says of it; after is called with what became of it.
func (s *Shard) ask(
	told string, patience time.Duration, do func(context.Context, nstancev1.OperatorServiceClient) error, after func(outcome),
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

// judge says what is known after an error. An earlier attempt may have had an
// effect, whatever the last one was told.
func judge(err error, attempts int) outcome {
	switch status.Code(err) {
	case codes.OK:
		return done
	case codes.NotFound: // that also goes for what the attempts before may have made
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

// doRefreshUnconfirmed has a config that takes groups away wait.
func doRefreshUnconfirmed(s *Shard, _ args) error {
	s.refresh(patience, false)
	return nil
}

// refresh has the config read again. What it takes away is accepted by the names that
// the refusal has, if confirmed.
func (s *Shard) refresh(patience time.Duration, confirmed bool) {
	var accepted []string
	s.ask("refresh config", patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
		_, err := c.RefreshConfig(ctx, &nstancev1.RefreshConfigRequest{AcceptRemovals: accepted})
		for tries := 0; confirmed && tries < 3 && len(rpc.Failures(err)) > 0; tries++ {
			accepted = nil
			for _, f := range rpc.Failures(err) {
				if f.Type != rpc.GroupKept {
					accepted = append(accepted, f.Subject)
				}
			}
			s.book.accepts(accepted)
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
	s.ask(told, patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
		_, err := c.UpsertGroup(ctx, r)
		return err
	}, func(o outcome) {
		if o == missing && len(r.GetRemove()) > 0 {
			o = refused // it may be the instance that is not there
		}
		s.book.promiseSize(defaultGroup(r.GetKey()), a.count, o)
	})
}

func doUngroup(s *Shard, a args) error {
	s.ask("delete group "+a.words[0], patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
		_, err := c.DeleteGroup(ctx, &nstancev1.DeleteGroupRequest{Key: a.words[0]})
		return err
	}, func(o outcome) { s.book.promiseSize(defaultGroup(a.words[0]), absent, o) })
	return nil
}

func defaultGroup(name string) fleet.GroupKey {
	return fleet.GroupKey{Tenant: fleet.DefaultTenant, Name: name}
}

func doCreate(s *Shard, a args) error {
	var id string
	s.operator.queue(func() { s.book.wantKey(a.words[1]) })
	told := fmt.Sprintf("create an instance of %s for key %s", a.words[0], a.words[1])
	s.ask(told, patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
		answer, err := c.CreateInstance(ctx, &nstancev1.CreateInstanceRequest{Group: a.words[0], IdempotencyKey: a.words[1]})
		id = answer.GetInstance().GetId()
		return err
	}, func(o outcome) {
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
	s.ask(told, patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
		_, err := c.DeleteInstance(ctx, r)
		return err
	}, func(o outcome) {
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
		s.ask(fmt.Sprintf("acknowledge %s", i.ID), patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
			_, err := c.AcknowledgeDrained(ctx, &nstancev1.AcknowledgeDrainedRequest{Id: string(i.ID)})
			return err
		}, func(o outcome) {
			if o == done {
				s.book.promiseAck(i.ID)
			}
		})
	}
	return nil
}
