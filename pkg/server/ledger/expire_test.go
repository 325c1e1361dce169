package ledger_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/ledger"
)

var theKey = ledger.RequestKey{Tenant: "default", Key: "k"}

// keyed creates an instance with a key, and ends it; failure: it failed.
func keyed(t *testing.T, w *ledger.Writer, n int, failure string) {
	t.Helper()
	i := pending(n)
	i.OnDemand, i.RequestKey = true, theKey.Key
	if _, err := w.Create(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	_, err := w.Update(t.Context(), i.ID, func(i *fleet.Instance) error {
		i.Phase = fleet.Deleted
		if i.Failure = failure; failure != "" {
			i.Reason = "create-failed"
		}
		return nil
	})
	if err == nil {
		err = w.Remove(t.Context(), i.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func expire(t *testing.T, w *ledger.Writer, want ledger.Expiry) {
	t.Helper()
	if got, err := w.Expire(t.Context(), theKey, time.Now()); err != nil || got != want {
		t.Fatalf("expired: %v, %v, want %v", got, err, want)
	}
}

// TestExpire: an old request that is never written again is deleted; one that may still be
// written is closed first.
func TestExpire(t *testing.T) {
	for name, test := range map[string]struct {
		make  func(t *testing.T, w *ledger.Writer)
		steps []ledger.Expiry
	}{
		"its instance lived": {func(t *testing.T, w *ledger.Writer) { keyed(t, w, 1, "") }, []ledger.Expiry{ledger.Removed, ledger.Kept}},
		"its instance failed": {
			func(t *testing.T, w *ledger.Writer) { keyed(t, w, 1, "no room") }, []ledger.Expiry{ledger.Closed, ledger.Removed},
		},
		"its record was never written": {func(*testing.T, *ledger.Writer) {}, []ledger.Expiry{ledger.Closed, ledger.Removed}},
		"its instance lives": {func(t *testing.T, w *ledger.Writer) {
			i := pending(1)
			i.OnDemand, i.RequestKey = true, theKey.Key
			if _, err := w.Create(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}, []ledger.Expiry{ledger.Kept}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _, inner := bare(t)
				w := l.Lead(term{epoch: 2})
				if _, err := w.Claim(t.Context(), asked(1)); err != nil {
					t.Fatal(err)
				}
				test.make(t, w)
				if got, err := w.Expire(t.Context(), theKey, time.Now()); err != nil || got != ledger.Kept {
					t.Errorf("one that was just written: %v, %v", got, err)
				}
				time.Sleep(time.Hour)
				var old []ledger.RequestKey
				for page, err := range l.OldRequests(t.Context(), time.Now()) {
					if old = append(old, page...); err != nil {
						t.Error(err)
					}
				}
				if lives := test.steps[0] == ledger.Kept; slices.Contains(old, theKey) == lives {
					t.Errorf("listed as old: %v", old)
				}
				for _, want := range test.steps {
					expire(t, w, want)
					if want == ledger.Closed {
						shut(t, l, w)
						time.Sleep(time.Hour)
					}
				}
				_, err := inner.Get(t.Context(), askedAt)
				if gone := slices.Contains(test.steps, ledger.Removed); errors.Is(err, object.ErrNotFound) != gone {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

// shut expects a key to name its instance permanently.
func shut(t *testing.T, l *ledger.Ledger, w *ledger.Writer) {
	t.Helper()
	if r, err := w.Reclaim(t.Context(), newID(1), asked(2)); err != nil || r.ID != newID(1) {
		t.Errorf("reclaimed although it was closed: %v, %v", r.ID, err)
	}
	if r, err := l.Request(t.Context(), "default", "k"); err != nil || !r.Gone || !r.Removed {
		t.Errorf("closed: %+v, %v", r, err)
	}
}

// TestExpireGivesWay: a request that is reclaimed while it is being closed names the new
// instance, and stays; so does one whose record is in the store but not in memory.
func TestExpireGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, faults, inner := bare(t)
		w := l.Lead(term{epoch: 2})
		if _, err := w.Claim(t.Context(), asked(1)); err != nil {
			t.Fatal(err)
		}
		keyed(t, w, 1, "no room")
		time.Sleep(time.Hour)
		raced := false
		faults.Set(func(q objecttest.Request) objecttest.Outcome {
			if q.Verb == object.VerbPut && q.Key == askedAt && !raced {
				raced = true
				o, err := inner.Get(context.Background(), askedAt)
				if err == nil {
					_, err = inner.Put(context.Background(), askedAt, append(o.Body, ' '), object.IfMatch(o.ETag))
				}
				if err != nil {
					t.Error(err)
				}
			}
			return objecttest.Outcome{}
		})
		if got, err := w.Expire(t.Context(), theKey, time.Now()); err != nil || got != ledger.Kept || !raced {
			t.Errorf("closed over another's write: %v, %v", got, err)
		}
		faults.Set(nil)
		time.Sleep(time.Hour)
		if _, err := inner.Put(t.Context(), key(1), []byte("{}"), object.Precondition{}); err != nil {
			t.Fatal(err)
		}
		expire(t, w, ledger.Kept)
	})
}

// TestExpireOfARefusedRequest: a request that the store refuses to return is kept without an error,
// which would keep those after it, and so is one whose instance's record is refused.
func TestExpireOfARefusedRequest(t *testing.T) {
	for name, at := range map[string]string{"the request": askedAt, "the record": key(1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, faults, _ := bare(t)
				w := l.Lead(term{epoch: 2})
				if _, err := w.Claim(t.Context(), asked(1)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				faults.Set(func(q objecttest.Request) objecttest.Outcome {
					if q.Verb == object.VerbGet && q.Key == at {
						return objecttest.Outcome{Fault: objecttest.Refused}
					}
					return objecttest.Outcome{}
				})
				expire(t, w, ledger.Kept)
				faults.Set(nil)
				expire(t, w, ledger.Closed)
			})
		})
	}
}
