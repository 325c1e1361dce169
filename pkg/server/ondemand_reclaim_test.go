package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// reclaimedMeanwhile runs call for a key whose instance failed and is pruned, while another
// caller creates with it between this call's two reads of the key. It returns the instance
// that the key names then.
func reclaimedMeanwhile(
	t *testing.T, ask func(context.Context, nstancev1.OperatorServiceClient) error,
) (*site, *process, fleet.InstanceID) {
	t.Helper()
	s, p := running(t)
	s.world.FailNext(fake.OpCreate, 1, fake.Fault{Err: fmt.Errorf("no such type: %w", provider.ErrInvalid)})
	old := p.created("k")
	p.awaitPhase(old, isDeleted)
	if err := p.shutdown(); err != nil {
		t.Fatal(err)
	}
	s.prune(old)
	q := s.start(named("b")).awaitLeading()
	if err := s.agents.move(q); err != nil {
		t.Fatal(err)
	}
	reached := s.slowSecondRead("request/")
	client, ctx, answer := q.operator("default"), within(t), make(chan error, 1)
	go func() { answer <- ask(ctx, client) }()
	<-reached
	now := q.created("k")
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	if now == old {
		t.Fatalf("the key still names %s, which failed", old)
	}
	return s, q, now
}

// slowSecondRead delays the second read of keys under a prefix by two seconds, and signals its
// start.
func (s *site) slowSecondRead(prefix string) (reached <-chan struct{}) {
	began, reads := make(chan struct{}), 0
	s.store.Set(func(r objecttest.Request) (o objecttest.Outcome) {
		if r.Verb == object.VerbGet && strings.HasPrefix(r.Key, prefix) {
			if reads++; reads == 2 {
				close(began)
				o.Latency = 2 * time.Second
			}
		}
		return o
	})
	return began
}

// TestCreateWhileKeyIsReclaimed: a caller that read the key before another one reclaimed it gets
// the new instance, and there is one machine.
func TestCreateWhileKeyIsReclaimed(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var told string
		s, p, id := reclaimedMeanwhile(t, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
			resp, err := c.CreateInstance(ctx, &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: "k"})
			told = resp.GetInstance().GetId()
			return err
		})
		if told != string(id) {
			t.Errorf("two callers at once are told %s and %s", told, id)
		}
		p.awaitPhase(id, isRunning)
		if all := s.onDemand(); len(all) != 1 || len(s.living()) != 3 {
			t.Errorf("records %v, and %v live", all, s.living())
		}
	})
}

// TestDeleteByKeyWhileItIsReclaimed: the deleted instance is the one that the key names now.
func TestDeleteByKeyWhileItIsReclaimed(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, id := reclaimedMeanwhile(t, func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
			_, err := c.DeleteInstance(ctx, &nstancev1.DeleteInstanceRequest{
				Target: &nstancev1.DeleteInstanceRequest_IdempotencyKey{IdempotencyKey: "k"}})
			return err
		})
		p.awaitPhase(id, isDeleted)
		if all := s.onDemand(); len(all) != 1 || len(s.living()) != 2 {
			t.Errorf("records %v, and %v live", all, s.living())
		}
	})
}
