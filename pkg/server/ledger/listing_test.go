package ledger_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// TestListingLacksRecords: what memory or the cache knows and a listing lacks is read by
// its key, and stays known when it is there.
func TestListingLacksRecords(t *testing.T) {
	counted, cfg, _ := shard(t, 5)
	store := objecttest.NewListing(counted)
	put(t, counted, key(7), "{")
	cfg.Store = store
	l := open(t, cfg)
	defer closeLedger(t, l)
	store.Hide(func(k string) bool { return k == key(1) || k == key(3) }) // the cache alone knows them
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

// TestListingLacksGroups: a tenant's object that a listing lacks is read by its key, and
// one that is gone stays known by its last version, also after a restart.
func TestListingLacksGroups(t *testing.T) {
	inner := mem.New(mem.Config{HashETags: true})
	store := objecttest.NewListing(inner)
	cfg := config(t, store)
	l := open(t, cfg)
	at := l.TenantKey("default")
	etag, err := l.Lead(term{epoch: 1}).PutGroups(t.Context(), at, []byte(`{"epoch":1}`), "")
	if err != nil {
		t.Fatal(err)
	}
	store.Hide(func(k string) bool { return k == at })
	expect := func(what string, want ledger.GroupsObject, also ...string) {
		t.Helper()
		found, err := l.Tenants(t.Context(), also...)
		is := found["default"]
		if err != nil || is.ETag != want.ETag || string(is.Body) != string(want.Body) || string(is.Prior) != string(want.Prior) {
			t.Errorf("%s: %s, %v", what, is, err)
		}
	}
	expect("not listed", ledger.GroupsObject{ETag: etag, Body: []byte(`{"epoch":1}`)})
	if err := inner.Delete(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	gone := ledger.GroupsObject{Prior: []byte(`{"epoch":1}`)}
	expect("removed", gone)
	closeLedger(t, l)
	l = open(t, cfg)
	load(t, l)
	expect("removed, and this is another process", gone)
	put(t, inner, at, `{"epoch":1,"rev":7}`)
	l = open(t, config(t, store)) // without the cache
	defer closeLedger(t, l)
	found, err := l.Tenants(t.Context(), "default")
	if err != nil || string(found["default"].Body) != `{"epoch":1,"rev":7}` {
		t.Errorf("neither known nor listed, and asked for: %s, %v", found, err)
	}
}
