package ledger_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

// TestListingLacksRecords: a record that memory or the cache knows and a listing lacks is read
// by its key, and kept if it exists.
func TestListingLacksRecords(t *testing.T) {
	counted, cfg, _ := shard(t, 5)
	store := objecttest.NewListing(counted)
	put(t, counted, key(7), "{")
	cfg.Store = store
	l := open(t, cfg)
	defer closeLedger(t, l)
	store.Hide(func(k string) bool { return k == key(1) || k == key(3) }) // only the cache knows them
	if load(t, l); ids(l.Instances()) != "0 1 2 3 4" {
		t.Errorf("after a warm start: %s", ids(l.Instances()))
	}
	if err := counted.Delete(t.Context(), key(2)); err != nil {
		t.Fatal(err)
	}
	store.Hide(func(string) bool { return true })
	appeared, vanished, err := l.Relist(t.Context())
	if err != nil || len(appeared) != 0 || len(vanished) != 1 || vanished[0] != newID(2) {
		t.Errorf("appeared %v, vanished %v, %v", appeared, vanished, err)
	}
	if ids(l.Instances()) != "0 1 3 4" {
		t.Errorf("after an empty listing: %s", ids(l.Instances()))
	}
	if m := l.Malformed(); len(m) != 1 || m[0].Key != key(7) {
		t.Errorf("what could not be understood is there, and not known: %v", m)
	}
	if err := counted.Delete(t.Context(), key(7)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Relist(t.Context()); err != nil || len(l.Malformed()) > 0 {
		t.Errorf("it is gone, and known: %v, %v", l.Malformed(), err)
	}
}

// TestFoundRecords: the records of earlier terms are counted by group when they are found, whether a
// listing shows them or they are read by key; those of this term are not.
func TestFoundRecords(t *testing.T) {
	counted, cfg, _ := shard(t, 4)
	store := objecttest.NewListing(counted)
	cfg.Store, cfg.CachePath = store, ""
	store.Hide(func(k string) bool { return k != key(0) })
	l := open(t, cfg)
	defer closeLedger(t, l)
	w := l.Lead(term{epoch: 9})
	expect := func(when string, found uint64, records int) {
		t.Helper()
		if got := l.Traces(pending(0).GroupKey()); got.Found != found || got.Records != records {
			t.Errorf("%s: %+v, want %d, %d of them found", when, got, records, found)
		}
	}
	load(t, l)
	expect("loaded", 1, 1)
	for range 2 {
		if found, err := l.Recall(t.Context(), "default", newID(1)); !found || err != nil {
			t.Fatal(found, err)
		}
		expect("read by key", 2, 2)
	}
	create(t, w, 7)
	expect("created", 2, 3)
	store.Hide(nil)
	if _, _, err := l.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("listed", 4, 5)
	load(t, l)
	expect("loaded again", 4, 5)
	l.Lead(term{epoch: 10})
	load(t, l)
	expect("in the next term", 0, 5)
}

// TestRecall: a record that no listing has shown is found by its key.
func TestRecall(t *testing.T) {
	counted, cfg, _ := shard(t, 2)
	store := objecttest.NewListing(counted)
	cfg.Store, cfg.CachePath = store, ""
	store.Hide(func(k string) bool { return k == key(1) })
	l := open(t, cfg)
	defer closeLedger(t, l)
	if load(t, l); ids(l.Instances()) != "0" {
		t.Fatalf("known: %s", ids(l.Instances()))
	}
	for id, want := range map[fleet.InstanceID]bool{newID(0): true, newID(1): true, newID(2): false} {
		if found, err := l.Recall(t.Context(), "default", id); found != want || err != nil {
			t.Errorf("%s is found: %v, %v", id, found, err)
		}
	}
	if ids(l.Instances()) != "0 1" {
		t.Errorf("known: %s", ids(l.Instances()))
	}
}
