package ledger_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// TestReclaim: of concurrent reclaims of a failed instance's key, one succeeds, and all return
// the same. A key that names another instance by then is unchanged.
func TestReclaim(t *testing.T) {
	l, _, _ := bare(t)
	w := l.Lead(term{epoch: 2})
	if _, err := w.Claim(t.Context(), asked(1)); err != nil {
		t.Fatal(err)
	}
	ids := make([]fleet.InstanceID, 8)
	var all sync.WaitGroup
	for n := range ids {
		all.Go(func() {
			r := asked(10 + n)
			r.Overrides = &fleet.Overrides{InstanceType: "large"}
			got, err := w.Reclaim(t.Context(), newID(1), r)
			if err != nil {
				t.Error(err)
			}
			ids[n] = got.ID
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] || id == newID(1) {
			t.Fatalf("they were told %v", ids)
		}
	}
	r, err := l.Request(t.Context(), "default", "k")
	if err != nil || r.ID != ids[0] || r.Rev != 2 || r.Epoch != 2 || r.Writer != "server-1" || r.Overrides.InstanceType != "large" {
		t.Errorf("stored: %+v, %v", r, err)
	}
	if r, err := w.Reclaim(t.Context(), newID(1), asked(9)); err != nil || r.ID != ids[0] {
		t.Errorf("reclaimed from one that it does not name any more: %v, %v", r.ID, err)
	}
	unheard := asked(9)
	unheard.Key = "unheard"
	if _, err := w.Reclaim(t.Context(), newID(1), unheard); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("reclaimed what was never claimed: %v", err)
	}
	bad := asked(9)
	bad.ID = "x"
	if _, err := w.Reclaim(t.Context(), ids[0], bad); err == nil {
		t.Error("reclaimed for no instance")
	}
}

// TestReclaimLosesReplies: a reclaim of unknown outcome and the next one agree.
func TestReclaimLosesReplies(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{"its reply": objecttest.ReplyLost, "itself": objecttest.Dropped} {
		synctest.Test(t, func(t *testing.T) {
			l, faults, _ := bare(t)
			w := l.Lead(term{epoch: 1})
			if _, err := w.Claim(t.Context(), asked(1)); err != nil {
				t.Fatal(err)
			}
			struck := false
			faults.Set(func(q objecttest.Request) objecttest.Outcome {
				if q.Verb != object.VerbPut || struck {
					return objecttest.Outcome{}
				}
				struck = true
				return objecttest.Outcome{Fault: fault}
			})
			r, err := w.Reclaim(t.Context(), newID(1), asked(2))
			if err != nil || r.ID != newID(2) {
				t.Errorf("it lost %s: %v, %v", name, r.ID, err)
			}
		})
	}
}

// TestKeep: an attached key names its instance permanently, even a failed one; a key that was
// reclaimed before is not attached.
func TestKeep(t *testing.T) {
	l, _, _ := bare(t)
	w := l.Lead(term{epoch: 2})
	if _, err := w.Claim(t.Context(), asked(1)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r, err := w.AttachKey(t.Context(), "default", "k", newID(1)); err != nil || !r.Removed || r.ID != newID(1) || r.Rev != 2 {
			t.Errorf("kept: %+v, %v", r, err)
		}
	}
	if r, err := w.Reclaim(t.Context(), newID(1), asked(2)); err != nil || r.ID != newID(1) {
		t.Errorf("reclaimed: %v, %v", r.ID, err)
	}
	if r, err := w.AttachKey(t.Context(), "default", "k", newID(2)); err != nil || r.ID != newID(1) || r.Rev != 2 {
		t.Errorf("kept for one that it does not name: %+v, %v", r, err)
	}
}

// TestRemoveOfOneThatFailed: its request records the failure when the record is removed, unless
// removal of the instance was requested.
func TestRemoveOfOneThatFailed(t *testing.T) {
	for name, asks := range map[string]bool{"it failed": false, "it was removed": true} {
		t.Run(name, func(t *testing.T) {
			l, _, inner := bare(t)
			w := l.Lead(term{epoch: 2})
			if _, err := w.Claim(t.Context(), asked(1)); err != nil {
				t.Fatal(err)
			}
			i := pending(1)
			i.OnDemand, i.RequestKey = true, "k"
			if _, err := w.Create(t.Context(), i); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Update(t.Context(), i.ID, func(i *fleet.Instance) error {
				i.Phase, i.Failure = fleet.Deleted, "no room"
				if asks {
					i.RemovalAskedAt = &start
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := w.Remove(t.Context(), i.ID); err != nil {
				t.Fatal(err)
			}
			r, err := l.Request(t.Context(), "default", "k")
			if err != nil || !r.Gone || (r.Failure == "no room") == asks {
				t.Errorf("the request is %+v, %v", r, err)
			}
			o, err := inner.Get(t.Context(), askedAt)
			if err != nil || strings.Contains(string(o.Body), "removed") {
				t.Errorf("stored %s, %v", o.Body, err)
			}
		})
	}
}
