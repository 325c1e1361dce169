package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/ledger"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestLateRecordOfALeaderBefore: a record that lands under the next leader is adopted by a
// repeated call, not abandoned.
func TestLateRecordOfALeaderBefore(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, q, id := halfMade(t, "k")
		late := fmt.Sprintf(`{"id":%q,"tenant":"default","group":"web","on_demand":true,"request_key":"k","phase":"pending",
		"epoch":1,"rev":1,"writer":"before","created_at":%q,"provider":{},"hashes":{"infra":"","runtime":""}}`,
			id, time.Now().Format(time.RFC3339Nano))
		s.put("instance/"+shardID+"/default."+id.StorageKey()+".json", late)
		if have := q.created("k"); have != id {
			t.Errorf("made %s, the key names %s", have, id)
		}
		q.awaitPhase(id, isRunning)
		if all := s.onDemand(); len(all) != 1 {
			t.Errorf("records %+v", all)
		}
	})
}

// TestDeleteByKeyOfHalfMade: after the delete, neither a repeated creation nor a late record
// creates the instance.
func TestDeleteByKeyOfHalfMade(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, q, id := halfMade(t, "k")
		if err := q.deleteByKey("k"); err != nil {
			t.Fatal(err)
		}
		if i, err := q.create("k"); err != nil || i.GetId() != string(id) {
			t.Errorf("created again: %v, %v", i, err)
		}
		q.awaitPhase(id, isDeleted)
		if n := len(s.world.CreateCalls(id)); n != 0 || len(s.living()) != 2 {
			t.Errorf("%d creates, %v live", n, s.living())
		}
	})
}

// lastTerm is a fence for use while no server runs.
type lastTerm struct{ epoch uint64 }

func (t lastTerm) Epoch() uint64 { return t.epoch }

func (t lastTerm) RiseAbove(uint64) {}

func (t lastTerm) Act(ctx context.Context, write func(context.Context) error) error {
	return write(ctx)
}

// prune removes the tombstone of an instance like a leader after its retention, which is at
// least a minute.
func (s *site) prune(id fleet.InstanceID) {
	s.t.Helper()
	l, err := ledger.Open(ledger.Config{Store: s.inner, Shard: shardID, Writer: "test", Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := l.Load(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	if err := l.Lead(lastTerm{s.leader().Epoch}).Remove(context.Background(), id); err != nil {
		s.t.Fatal(err)
	}
}

// TestKeyOutlivesItsInstance: after the record is pruned, the key still names it.
func TestKeyOutlivesItsInstance(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		id := p.created("k")
		p.awaitPhase(id, isRunning)
		if err := p.deleteByKey("k"); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(id, isDeleted)
		p.ends()
		s.prune(id)
		q := s.start(named("b")).awaitLeading()
		i, err := q.create("k")
		if err != nil || i.GetId() != string(id) || i.GetPhase() != isDeleted || !i.GetOnDemand() || i.GetGroup() != "web" ||
			i.GetCreatedAt() == nil {
			t.Errorf("created again: %v, %v", i, err)
		}
		if err := q.deleteByKey("k"); err != nil {
			t.Errorf("deleted again: %v", err)
		}
		refused(t, q.delete(id), codes.NotFound, "no such instance")
		if n := len(s.onDemand()); n > 0 {
			t.Errorf("%d records", n)
		}
	})
}

// TestOverrides: an instance's overrides reach only its own machine, files and status.
func TestOverrides(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 1 } }`)
		p := s.start()
		g := s.inhabit(p)
		p.awaitSize("web", 1)
		own := s.living()[0]
		vars, err := structpb.NewStruct(map[string]any{"level": 1000000})
		if err != nil {
			t.Fatal(err)
		}
		id := p.created("k", func(r *nstancev1.CreateInstanceRequest) { r.InstanceType, r.Vars = ptr("large"), vars })
		g.awaitFile(id, "app.env", "LEVEL=1000000\n")
		g.awaitFile(own, "app.env", "LEVEL=info\n")
		spec, _ := s.world.Spec(id)
		if i, err := p.instance(id); err != nil || i.GetInstanceType() != "large" || spec.InstanceType != "large" {
			t.Errorf("status %v, %v; made as %q", i, err, spec.InstanceType)
		}
		if spec, _ := s.world.Spec(own); spec.InstanceType != "" {
			t.Errorf("the group's own was made as %q", spec.InstanceType)
		}
	})
}

// TestDeleteManaged: a managed instance is replaced before it is drained.
func TestDeleteManaged(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		before := s.living()
		s.world.ForgetCalls()
		for range 2 { // idempotent
			if err := p.delete(before[0]); err != nil {
				t.Fatal(err)
			}
		}
		p.awaitPhase(before[0], isDeleted)
		p.awaitSize("web", 2)
		if have := s.living(); len(have) != 2 || have[0] != before[1] {
			t.Errorf("%v live, were %v", have, before)
		}
		var order []fake.Op
		for _, c := range s.world.Calls(fake.OpCreate, fake.OpDelete) {
			order = append(order, c.Op)
		}
		if !slices.Equal(order, []fake.Op{fake.OpCreate, fake.OpDelete}) {
			t.Errorf("the provider was asked to %v", order)
		}
	})
}
