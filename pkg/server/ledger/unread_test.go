package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// TestUnread: a term that finds records as it knew them, in memory or in the cache file, has not read
// them until it reads or writes each; tombstones need no read. A read that fails leaves memory as it was.
func TestUnread(t *testing.T) {
	for name, cached := range map[string]bool{"in memory": false, "cached": true} {
		t.Run(name, func(t *testing.T) {
			store, cfg, _ := shard(t, 6)
			faults := objecttest.NewFaults(store, nil)
			cfg.Store = faults
			l := open(t, cfg)
			defer func() { closeLedger(t, l) }()
			expect := func(what string, numbers ...int) {
				t.Helper()
				var want []fleet.InstanceID
				for _, n := range numbers {
					want = append(want, newID(n))
				}
				have := l.Unread(fleet.GroupKey{Tenant: "default", Name: "web"})
				if slices.Sort(want); !slices.Equal(have, want) {
					t.Errorf("%s: %v are unread, want %v", what, have, want)
				}
			}
			w := l.Lead(term{epoch: 2})
			load(t, l)
			for n := range 6 {
				update(t, w, n, fleet.Running)
			}
			expect("the term that wrote all")
			update(t, w, 5, fleet.Deleting)
			update(t, w, 5, fleet.Deleted)
			if cached {
				closeLedger(t, l)
				l = open(t, cfg)
			}
			w = l.Lead(term{epoch: 3})
			if s := load(t, l); s.Read != 0 {
				t.Fatalf("%d were read", s.Read)
			}
			expect("the next term", 0, 1, 2, 3, 4)
			if _, _, err := l.Relist(t.Context()); err != nil {
				t.Fatal(err)
			}
			expect("after another listing", 0, 1, 2, 3, 4)
			update(t, w, 0, fleet.Draining)
			confirm(t, l, 1, nil)
			expect("after a write and a read", 2, 3, 4)
			put(t, store, key(2), "damaged")
			confirm(t, l, 2, nil)
			expect("after a read of a damaged one", 3, 4)
			faults.Set(fails(3, objecttest.Refused))
			confirm(t, l, 3, object.ErrRefused)
			faults.Set(fails(4, objecttest.Dropped))
			confirm(t, l, 4, object.ErrUnknown)
			faults.Set(nil)
			if err := store.Delete(t.Context(), key(4)); err != nil {
				t.Fatal(err)
			}
			confirm(t, l, 4, object.ErrNotFound)
			expect("after reads that failed", 3, 4)
			if n := len(l.Instances()); n != 6 || l.Vanished() != 0 {
				t.Errorf("%d are known, %d vanished", n, l.Vanished())
			}
		})
	}
}

// TestNothingIsUnreadAtFirst: a process without memory or cache reads all that is listed.
func TestNothingIsUnreadAtFirst(t *testing.T) {
	_, cfg, _ := shard(t, 2)
	cfg.CachePath = ""
	l := open(t, cfg)
	defer closeLedger(t, l)
	l.Lead(term{epoch: 2})
	load(t, l)
	if have := l.Unread(fleet.GroupKey{Tenant: "default", Name: "web"}); len(have) > 0 {
		t.Errorf("%v are unread", have)
	}
}

func confirm(t *testing.T, l *ledger.Ledger, n int, want error) {
	t.Helper()
	if err := l.Confirm(t.Context(), "default", newID(n)); !errors.Is(err, want) {
		t.Error(fmt.Errorf("read record %d: %w", n, err))
	}
}

// fails fails the reads of a record.
func fails(n int, fault objecttest.Fault) objecttest.Plan {
	return func(r objecttest.Request) (o objecttest.Outcome) {
		if r.Verb == object.VerbGet && r.Key == key(n) {
			o.Fault = fault
		}
		return o
	}
}
