package ledger_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/reconcile"
	"github.com/nstance/nstance/pkg/server/reconcile/ledgertest"
)

// TestLoopContract: the ledger satisfies the contract of the leader's loop.
func TestLoopContract(t *testing.T) {
	ledgertest.Run(t, func(*testing.T) ledgertest.Store {
		s := &contract{Store: mem.New(mem.Config{HashETags: true})}
		s.faults = objecttest.NewFaults(s.Store, nil)
		return s
	})
}

// contract is a bucket with successive leaders.
type contract struct {
	object.Store
	faults *objecttest.Faults
	epoch  uint64
}

func (s *contract) Lead(t *testing.T) reconcile.Ledger { return s.lead(t, s.faults) }

func (s *contract) lead(t *testing.T, store object.Store) led {
	t.Helper()
	cfg := config(t, store)
	s.epoch++
	epoch := s.epoch
	cfg.Writer = fmt.Sprintf("server-%d", epoch)
	l := open(t, cfg)
	t.Cleanup(func() { closeLedger(t, l) })
	load(t, l)
	return led{l, l.Lead(term{epoch: epoch, lost: func() bool { return epoch != s.epoch }})}
}

func (s *contract) Place(t *testing.T, i fleet.Instance) {
	t.Helper()
	epoch := s.epoch
	defer func() { s.epoch = epoch }()
	s.epoch-- // written in the current term
	if _, err := s.lead(t, s.Store).Create(t.Context(), i); err != nil {
		t.Fatal(err)
	}
}

func (s *contract) Take(t *testing.T, i fleet.Instance) {
	t.Helper()
	if err := s.Delete(t.Context(), storageKey(i)); err != nil {
		t.Fatal(err)
	}
}

func (s *contract) Spoil(t *testing.T, i fleet.Instance) {
	t.Helper()
	o, err := s.Get(t.Context(), storageKey(i))
	if err == nil {
		_, err = s.Put(t.Context(), o.Key, []byte("spoiled"), object.IfMatch(o.ETag))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func storageKey(i fleet.Instance) string {
	return "instance/dev-1/default." + i.ID.StorageKey() + ".json"
}

func (s *contract) LoseReply() {
	lost := false
	s.faults.Set(func(r objecttest.Request) objecttest.Outcome {
		if r.Verb != object.VerbPut || lost {
			return objecttest.Outcome{}
		}
		lost = true
		return objecttest.Outcome{Fault: objecttest.ReplyLost}
	})
}

// led is a ledger with a term's writer.
type led struct {
	*ledger.Ledger
	w *ledger.Writer
}

func (l led) Create(ctx context.Context, i fleet.Instance) (fleet.Instance, error) {
	return l.w.Create(ctx, i)
}

func (l led) Update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	return l.w.Update(ctx, id, change)
}

func (l led) Remove(ctx context.Context, id fleet.InstanceID) error { return l.w.Remove(ctx, id) }
