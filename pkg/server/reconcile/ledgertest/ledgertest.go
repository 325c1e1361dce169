// Package ledgertest is the contract of reconcile.Ledger as a test suite. It
// runs on the ledger of the shard, and on the double that the tests of the loop
// use, so that the two can't drift apart.
package ledgertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// Store is what ledgers are kept in, empty at first.
type Store interface {
	// Lead begins a term, which ends the one before, and returns its ledger,
	// which knows all that is stored.
	Lead(t *testing.T) reconcile.Ledger
	// Place stores a pending record, Take removes one and Spoil makes one
	// unreadable, all behind the ledgers' backs.
	Place(t *testing.T, i fleet.Instance)
	Take(t *testing.T, i fleet.Instance)
	Spoil(t *testing.T, i fleet.Instance)
	// LoseReply has the next write land, and its reply be lost.
	LoseReply()
}

// Run runs the suite, with a new store for each test.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for name, test := range map[string]func(*testing.T, Store){
		"Create": create, "LostReply": lostReply, "Update": update, "Refused": refused, "Remove": remove,
		"Relist": relist, "Recall": recall, "Unread": unread, "OverTerm": overTerm, "Malformed": malformed,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func group() fleet.GroupKey { return fleet.GroupKey{Tenant: "default", Name: "web"} }

// pending returns the n-th record.
func pending(t *testing.T, n int) fleet.Instance {
	t.Helper()
	at := time.Date(2026, 3, 1, 12, 0, n, 0, time.UTC)
	id, err := fleet.NewID("knd", at, bytes.NewReader(fmt.Appendf(nil, "%010d", n)))
	if err != nil {
		t.Fatal(err)
	}
	return fleet.Instance{ID: id, Tenant: group().Tenant, Group: group().Name, Phase: fleet.Pending, CreatedAt: at}
}

func created(t *testing.T, l reconcile.Ledger, n int) fleet.Instance {
	t.Helper()
	i, err := l.Create(t.Context(), pending(t, n))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func moved(t *testing.T, l reconcile.Ledger, id fleet.InstanceID, phases ...fleet.Phase) {
	t.Helper()
	for _, to := range phases {
		if _, err := l.Update(t.Context(), id, move(to)); err != nil {
			t.Fatalf("move to %s: %v", to, err)
		}
	}
}

func move(to fleet.Phase) func(*fleet.Instance) error {
	return func(i *fleet.Instance) error { i.Phase = to; return nil }
}

// expect fails unless the ledger shows exactly these instances, in every way,
// in these phases.
func expect(t *testing.T, l reconcile.Ledger, want map[fleet.InstanceID]fleet.Phase) {
	t.Helper()
	for how, all := range map[string][]fleet.Instance{"Instances": l.Instances(), "Members": members(l, group())} {
		if len(all) != len(want) {
			t.Errorf("%s shows %d records, want %d", how, len(all), len(want))
		}
		for _, i := range all {
			if want[i.ID] != i.Phase {
				t.Errorf("%s shows %s as %q, want %q", how, i.ID, i.Phase, want[i.ID])
			}
		}
	}
	for id, phase := range want {
		if i, ok := l.Get(id); !ok || i.ID != id || i.Phase != phase {
			t.Errorf("Get shows %s as %q (%v), want %q", id, i.Phase, ok, phase)
		}
	}
	if other := members(l, fleet.GroupKey{Tenant: group().Tenant, Name: "db"}); len(other) != 0 {
		t.Errorf("another group has %d records", len(other))
	}
}

func members(l reconcile.Ledger, key fleet.GroupKey) (all []fleet.Instance) {
	for _, i := range l.Members(key, nil) {
		all = append(all, *i)
	}
	return all
}

type phases = map[fleet.InstanceID]fleet.Phase

func create(t *testing.T, s Store) {
	l := s.Lead(t)
	expect(t, l, nil)
	if _, ok := l.Get(pending(t, 1).ID); ok {
		t.Error("there is a record before it is created")
	}
	a, b := created(t, l, 1), created(t, l, 2)
	if a.Epoch == 0 || a.Epoch != b.Epoch {
		t.Errorf("epochs %d and %d, want those of the term", a.Epoch, b.Epoch)
	}
	want := phases{a.ID: fleet.Pending, b.ID: fleet.Pending}
	expect(t, l, want)
	next := s.Lead(t)
	expect(t, next, want)
	if _, err := next.Create(t.Context(), pending(t, 1)); err == nil {
		t.Error("the record of another term was created again")
	}
}

// lostReply: whatever the error says, a record that landed is there after a
// Relist at the latest.
func lostReply(t *testing.T, s Store) {
	l := s.Lead(t)
	s.LoseReply()
	_, err := l.Create(t.Context(), pending(t, 1))
	if _, ok := l.Get(pending(t, 1).ID); !ok && err == nil {
		t.Error("a create without an error shows no record")
	}
	if _, _, err := l.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, l, phases{pending(t, 1).ID: fleet.Pending})
	if _, err := l.Create(t.Context(), pending(t, 1)); err != nil {
		t.Errorf("the same create again: %v", err)
	}
}

func update(t *testing.T, s Store) {
	l := s.Lead(t)
	a := created(t, l, 1)
	before := l.Members(group(), nil)
	defer func() {
		if len(before) != 1 || before[0].Phase != fleet.Pending || before[0].Rev != a.Rev {
			t.Errorf("what was read before an update changed with it: %+v", before)
		}
	}()
	updated, err := l.Update(t.Context(), a.ID, func(i *fleet.Instance) error {
		i.Phase, i.Provider.ID = fleet.Running, "vm-1"
		return nil
	})
	if err != nil || updated.Phase != fleet.Running || updated.Provider.ID != "vm-1" {
		t.Fatalf("updated: %+v, %v", updated, err)
	}
	for _, l := range []reconcile.Ledger{l, s.Lead(t)} {
		expect(t, l, phases{a.ID: fleet.Running})
		if i, _ := l.Get(a.ID); i.Provider.ID != "vm-1" {
			t.Errorf("stored: %+v", i)
		}
	}
}

// refused: a change that fails, or that the life of an instance does not have,
// writes nothing.
func refused(t *testing.T, s Store) {
	l := s.Lead(t)
	a := created(t, l, 1)
	own := errors.New("no change after all")
	_, err := l.Update(t.Context(), a.ID, func(i *fleet.Instance) error {
		i.Phase = fleet.Running
		return own
	})
	if !errors.Is(err, own) {
		t.Errorf("the error of a change came back as %v", err)
	}
	moved(t, l, a.ID, fleet.Running, fleet.Deleting)
	if _, err := l.Update(t.Context(), a.ID, move(fleet.Running)); err == nil {
		t.Error("a deleting instance may run again")
	}
	if _, err := l.Update(t.Context(), pending(t, 2).ID, move(fleet.Running)); err == nil {
		t.Error("a record was changed that is not there")
	}
	expect(t, l, phases{a.ID: fleet.Deleting})
	expect(t, s.Lead(t), phases{a.ID: fleet.Deleting})
}

func remove(t *testing.T, s Store) {
	l := s.Lead(t)
	a, b := created(t, l, 1), created(t, l, 2)
	moved(t, l, a.ID, fleet.Deleted)
	expect(t, l, phases{a.ID: fleet.Deleted, b.ID: fleet.Pending})
	if err := l.Remove(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	expect(t, l, phases{b.ID: fleet.Pending})
	expect(t, s.Lead(t), phases{b.ID: fleet.Pending})
}

func relist(t *testing.T, s Store) {
	l := s.Lead(t)
	a, b, c := created(t, l, 1), created(t, l, 2), created(t, l, 3)
	moved(t, l, b.ID, fleet.Deleted)
	if appeared, vanished, err := l.Relist(t.Context()); err != nil || len(appeared)+len(vanished) != 0 || l.Vanished() != 0 {
		t.Fatalf("nothing was done: %v, %v, %v", appeared, vanished, err)
	}
	s.Take(t, a)
	s.Take(t, b)
	s.Place(t, pending(t, 4))
	expect(t, l, phases{a.ID: fleet.Pending, b.ID: fleet.Deleted, c.ID: fleet.Pending})
	appeared, vanished, err := l.Relist(t.Context())
	slices.Sort(vanished)
	if err != nil || !slices.Equal(appeared, []fleet.InstanceID{pending(t, 4).ID}) || !slices.Equal(vanished, []fleet.InstanceID{a.ID, b.ID}) {
		t.Errorf("appeared %v, vanished %v: %v", appeared, vanished, err)
	}
	if n := l.Vanished(); n != 1 {
		t.Errorf("%d vanished, want 1: a tombstone does not count", n)
	}
	expect(t, l, phases{c.ID: fleet.Pending, pending(t, 4).ID: fleet.Pending})
}

// recall: a record that memory lacks is found by its key.
func recall(t *testing.T, s Store) {
	l := s.Lead(t)
	s.Place(t, pending(t, 1))
	for n, want := range map[int]bool{1: true, 2: false} {
		if found, err := l.Recall(t.Context(), group().Tenant, pending(t, n).ID); found != want || err != nil {
			t.Errorf("record %d is found: %v, %v", n, found, err)
		}
	}
	expect(t, l, phases{pending(t, 1).ID: fleet.Pending})
	gone := created(t, l, 3)
	s.Take(t, gone)
	for n := range 2 {
		if err := l.Reread(t.Context(), group().Tenant, pending(t, 1+2*n).ID); err != nil {
			t.Error(err)
		}
	}
	expect(t, l, phases{pending(t, 1).ID: fleet.Pending})
}

// unread: what a term has read or written is not unread. A read that fails changes nothing, also if the record
// is gone.
func unread(t *testing.T, s Store) {
	old := s.Lead(t)
	a, b, c := created(t, old, 1), created(t, old, 2), created(t, old, 3)
	l := s.Lead(t)
	moved(t, l, a.ID, fleet.Running)
	if err := l.Confirm(t.Context(), b.Tenant, b.ID); err != nil {
		t.Error(err)
	}
	if ids := l.Unread(group()); slices.Contains(ids, a.ID) || slices.Contains(ids, b.ID) {
		t.Errorf("%v are unread", ids)
	}
	before := l.Unread(group())
	s.Take(t, c)
	if err := l.Confirm(t.Context(), c.Tenant, c.ID); err == nil {
		t.Error("a record that is gone was read")
	}
	if after := l.Unread(group()); !slices.Equal(before, after) {
		t.Errorf("%v are unread, want %v", after, before)
	}
	expect(t, l, phases{a.ID: fleet.Running, b.ID: fleet.Pending, c.ID: fleet.Pending})
	made := created(t, l, 4)
	if ids := l.Unread(group()); slices.Contains(ids, made.ID) {
		t.Errorf("%v are unread", ids)
	}
}

// overTerm: a term that is over is told so by its writes.
func overTerm(t *testing.T, s Store) {
	old := s.Lead(t)
	a := created(t, old, 1)
	next := s.Lead(t)
	moved(t, next, a.ID, fleet.Running)
	if _, err := old.Create(t.Context(), pending(t, 2)); err == nil {
		t.Error("a create of a term that is over was told to be good")
	}
	if _, err := old.Update(t.Context(), a.ID, move(fleet.Deleted)); err == nil {
		t.Error("so was an update")
	}
	if i, _ := s.Lead(t).Get(a.ID); i.Phase != fleet.Running {
		t.Errorf("the record is %q", i.Phase)
	}
}

func malformed(t *testing.T, s Store) {
	l := s.Lead(t)
	a, b := created(t, l, 1), created(t, l, 2)
	if m := l.Malformed(); len(m) != 0 {
		t.Errorf("malformed: %v", m)
	}
	s.Spoil(t, a)
	l = s.Lead(t)
	expect(t, l, phases{b.ID: fleet.Pending})
	if m := l.Malformed(); len(m) != 1 || m[0].ID != a.ID || m[0].Key == "" || m[0].Err == nil {
		t.Errorf("malformed: %v", m)
	}
}
