package ledger_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/server/ledger"
)

func asked(n int) ledger.Request {
	return ledger.Request{Tenant: "default", Key: "k", ID: newID(n), Group: "web", CreatedAt: start}
}

const askedAt = "request/dev-1/default.k.json"

// TestClaim: concurrent claims of a key all return the same instance, and another tenant's
// key is another key.
func TestClaim(t *testing.T) {
	l, _, _ := bare(t)
	if _, err := l.Request(t.Context(), "default", "k"); !errors.Is(err, ledger.ErrNotFound) {
		t.Fatalf("before: %v", err)
	}
	ids := make([]fleet.InstanceID, 8)
	var all sync.WaitGroup
	for n := range ids {
		all.Go(func() {
			r, err := l.Lead(term{epoch: 2}).Claim(t.Context(), asked(n))
			if err != nil {
				t.Error(err)
			}
			ids[n] = r.ID
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("they were told %v", ids)
		}
	}
	r, err := l.Request(t.Context(), "default", "k")
	if err != nil || r.ID != ids[0] || r.Rev != 1 || r.Epoch != 2 || r.Writer != "server-1" || r.Gone {
		t.Errorf("stored: %+v, %v", r, err)
	}
	other := asked(99)
	other.Tenant = "prod"
	if r, err := l.Lead(term{epoch: 2}).Claim(t.Context(), other); err != nil || r.ID != newID(99) {
		t.Errorf("another tenant is told %v, %v", r.ID, err)
	}
	for _, bad := range []func(*ledger.Request){
		func(r *ledger.Request) { r.Key = "a/b" },
		func(r *ledger.Request) { r.Key = "" },
		func(r *ledger.Request) { r.Tenant = "a.b" },
		func(r *ledger.Request) { r.ID = "x" },
	} {
		r := asked(3)
		bad(&r)
		if _, err := l.Lead(term{epoch: 2}).Claim(t.Context(), r); err == nil {
			t.Errorf("%+v was claimed", r)
		}
	}
}

// TestClaimLosesReplies: a claim of unknown outcome and the next one agree.
func TestClaimLosesReplies(t *testing.T) {
	for name, outcome := range map[string]objecttest.Outcome{
		"its reply": {Fault: objecttest.ReplyLost}, "itself": {Fault: objecttest.Dropped},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, faults, _ := bare(t)
			faults.Set(objecttest.Script(outcome))
			r, err := l.Lead(term{epoch: 1}).Claim(t.Context(), asked(1))
			if err != nil || r.ID != newID(1) {
				t.Errorf("it lost %s: %v, %v", name, r.ID, err)
			}
		})
	}
}

// TestRemoveRetires: a record is removed only after its request is marked, whatever faults the
// store has in between.
func TestRemoveRetires(t *testing.T) {
	l, faults, inner := bare(t)
	w := l.Lead(term{epoch: 2})
	r, err := w.Claim(t.Context(), asked(1))
	if err != nil {
		t.Fatal(err)
	}
	i := pending(1)
	i.OnDemand, i.RequestKey = true, r.Key
	if _, err := w.Create(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	if n := l.Counts("default"); n.OnDemand != (ledger.Count{Active: 1}) || n.Managed["web"].All() != 0 {
		t.Errorf("%+v, want one on demand", n)
	}
	if n := l.Counts("prod").OnDemand; n.All() != 0 {
		t.Errorf("another tenant has %+v on demand", n)
	}
	update(t, w, 1, fleet.Deleting)
	if n := l.Counts("default").OnDemand; n != (ledger.Count{Leaving: 1}) {
		t.Errorf("%+v on demand, and it is being deleted", n)
	}
	update(t, w, 1, fleet.Deleted)
	if n := l.Counts("default").OnDemand; n.All() != 0 {
		t.Errorf("%+v on demand, and it is deleted", n)
	}

	faults.Set(func(q objecttest.Request) objecttest.Outcome {
		if q.Verb == object.VerbGet && q.Key == askedAt {
			return objecttest.Outcome{Fault: objecttest.Dropped}
		}
		return objecttest.Outcome{}
	})
	if err := w.Remove(t.Context(), newID(1)); !errors.Is(err, ledger.ErrUnknown) {
		t.Errorf("removed without its request: %v", err)
	}
	if _, err := l.Fetch(t.Context(), "default", newID(1)); err != nil {
		t.Errorf("the record left before its request said so: %v", err)
	}
	faults.Set(func(q objecttest.Request) objecttest.Outcome {
		if q.Verb == object.VerbDelete {
			if o, err := inner.Get(t.Context(), askedAt); err != nil || !strings.Contains(string(o.Body), `"gone":true`) {
				t.Errorf("when the record leaves, its request is %s, %v", o.Body, err)
			}
		}
		return objecttest.Outcome{}
	})
	if err := w.Remove(t.Context(), newID(1)); err != nil {
		t.Fatal(err)
	}
	if r, err := l.Request(t.Context(), "default", "k"); err != nil || !r.Gone || r.Rev != 2 || r.ID != newID(1) {
		t.Errorf("the request is %+v, %v", r, err)
	}
	if r, err := w.Claim(t.Context(), asked(2)); err != nil || r.ID != newID(1) || !r.Gone {
		t.Errorf("the key is claimed for another: %+v, %v", r, err)
	}
	if _, err := inner.Get(t.Context(), "instance/dev-1/default."+newID(1).StorageKey()+".json"); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("the record: %v", err)
	}
}

// TestRemoveWithoutRequest: an externally removed or damaged request does not keep a tombstone.
func TestRemoveWithoutRequest(t *testing.T) {
	for n, body := range []string{"", "{", strings.Replace(requestText(9), "default", "prod", 1)} {
		l, _, inner := bare(t)
		w := l.Lead(term{epoch: 2})
		if body != "" {
			put(t, inner, askedAt, body)
		}
		i := pending(1)
		i.OnDemand, i.RequestKey = true, "k"
		if _, err := w.Create(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		update(t, w, 1, fleet.Deleted)
		if err := w.Remove(t.Context(), newID(1)); err != nil {
			t.Errorf("case %d: %v", n, err)
		}
	}
}

func requestText(n int) string {
	return `{"tenant":"default","key":"k","id":"` + string(newID(n)) + `","group":"web","created_at":"2026-01-01T00:00:00Z","rev":1}`
}

// FuzzRequest: a request object names one instance, or is malformed.
func FuzzRequest(f *testing.F) {
	f.Add(requestText(1))
	f.Add(`{"tenant":"default","key":"k","id":null,"overrides":{"vars":{"a":[1e999]}}}`)
	f.Add(`{"tenant":"default","key":"k","rev":18446744073709551616}`)
	f.Add(strings.Replace(requestText(1), `"rev":1`, `"rev":9007199254740993`, 1))
	f.Add("[]")
	f.Add("\x00")
	f.Fuzz(func(t *testing.T, body string) {
		store := mem.New(mem.Config{})
		put(t, store, askedAt, body)
		cfg := config(t, store)
		cfg.CachePath = ""
		r, err := open(t, cfg).Request(t.Context(), "default", "k")
		if err != nil {
			if !errors.Is(err, ledger.ErrRequest) {
				t.Fatalf("%v is not ErrRequest", err)
			}
			return
		}
		_, err = fleet.ParseID(string(r.ID))
		if err != nil || r.Tenant != "default" || r.Key != "k" || fleet.CheckName(r.Group) != nil || r.Rev == 0 || r.Rev > record.MaxNumber {
			t.Fatalf("%+v", r)
		}
	})
}
