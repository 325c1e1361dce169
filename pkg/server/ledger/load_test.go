package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/ledger"
)

func put(t testing.TB, s object.Store, key, body string) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, []byte(body), object.Precondition{}); err != nil {
		t.Fatal(err)
	}
}

func TestMalformedObjectsNeverDropTheShard(t *testing.T) {
	store, cfg, _ := shard(t, 3)
	o, err := store.Get(t.Context(), key(1))
	if err != nil {
		t.Fatal(err)
	}
	good := string(o.Body)
	objects := map[string]string{
		key(10): "{",
		key(11): good, // another's
		key(12): strings.Replace(strings.ReplaceAll(good, string(newID(1)), string(newID(12))), "running", "asleep", 1),
		key(13): strings.Replace(strings.ReplaceAll(good, string(newID(1)), string(newID(13))), `"rev":2`, `"rev":0`, 1),
		key(14): strings.Replace(strings.ReplaceAll(good, string(newID(1)), string(newID(14))), `"web"`, `"We b"`, 1),
		"instance/dev-1/prod." + newID(1).StorageKey() + ".json":     good, // another tenant's
		"instance/dev-1/readme.txt":                                  "hello",
		"instance/dev-1/Default." + newID(15).StorageKey() + ".json": good,
		"instance/dev-1/default.x.json":                              good,
	}
	for k, body := range objects {
		put(t, store, k, body)
	}
	l := open(t, cfg)
	defer closeLedger(t, l)
	s := load(t, l)
	if got := ids(l.Instances()); got != "0 1 2" {
		t.Errorf("instances: %s", got)
	}
	if len(s.Malformed) != len(objects) {
		t.Errorf("%d malformed, want %d: %v; instances %v", len(s.Malformed), len(objects), s.Malformed, l.Instances())
	}
	for _, m := range s.Malformed {
		if _, ok := objects[m.Key]; !ok || m.Err == nil {
			t.Errorf("%s: %v", m.Key, m.Err)
		}
		if m.Key == key(10) && m.ID != newID(10) {
			t.Errorf("the VM of %s can't be told: %q", m.Key, m.ID)
		}
	}
	before := store.Counts()
	load(t, l)
	if n := store.Counts().Sub(before).Get - groupsRead; n != 0 {
		t.Errorf("%d malformed objects read again, unchanged", n)
	}
	for k := range objects {
		if err := store.Delete(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	if s := load(t, l); len(s.Malformed) != 0 {
		t.Errorf("removed ones are still reported: %v", s.Malformed)
	}
}

// A damaged record does not remove its instance.
func TestRecordSpoiledLater(t *testing.T) {
	store, cfg, _ := shard(t, 2)
	l := open(t, cfg)
	defer closeLedger(t, l)
	load(t, l)
	put(t, store, key(1), "spoiled")
	if _, _, err := l.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := ids(l.Instances()); got != "0 1" || len(l.Malformed()) != 1 {
		t.Errorf("instances %s, malformed %v", got, l.Malformed())
	}
	w := l.Lead(term{epoch: 2})
	_, err := w.Update(t.Context(), newID(1), move(fleet.Draining))
	if !isConflict(err) || !strings.Contains(err.Error(), "is malformed") {
		t.Errorf("update: %v", err)
	}
}

func TestRelist(t *testing.T) {
	store, cfg, _ := shard(t, 4)
	l := open(t, cfg)
	defer closeLedger(t, l)
	load(t, l)
	elsewhere := cfg
	elsewhere.CachePath, elsewhere.Writer = "", "server-2"
	other := open(t, elsewhere)
	load(t, other)
	w := other.Lead(term{epoch: 1})
	create(t, w, 8)
	create(t, w, 7)
	update(t, w, 1, fleet.Draining)
	for _, n := range []int{3, 2} {
		if err := store.Delete(t.Context(), key(n)); err != nil {
			t.Fatal(err)
		}
	}
	appeared, vanished, err := l.Relist(t.Context())
	want := fmt.Sprint([]fleet.InstanceID{newID(7), newID(8)}, []fleet.InstanceID{newID(2), newID(3)}, nil)
	if got := fmt.Sprint(appeared, vanished, err); got != want {
		t.Error(got)
	}
	if i, _ := l.Get(newID(1)); i.Phase != fleet.Draining {
		t.Errorf("changed elsewhere: %s", i.Phase)
	}
	if got := ids(l.Instances()); got != "0 1 7 8" {
		t.Errorf("instances: %s", got)
	}
	appeared, vanished, err = l.Relist(t.Context())
	if len(appeared)+len(vanished) != 0 || err != nil {
		t.Errorf("again: %v %v %v", appeared, vanished, err)
	}
}

// A listing is stale by the time it is processed. What this process creates and removes
// meanwhile neither appears nor vanishes.
func TestRelistBesideWrites(t *testing.T) {
	inner := mem.New(mem.Config{})
	store := &slowList{Store: inner, listed: make(chan struct{}), proceed: make(chan struct{})}
	l := open(t, config(t, store))
	defer closeLedger(t, l)
	w := l.Lead(term{epoch: 1})
	create(t, w, 1)
	for _, phase := range []fleet.Phase{fleet.Deleting, fleet.Deleted} {
		update(t, w, 1, phase)
	}
	create(t, w, 2)
	store.slow = true
	done := make(chan string)
	go func() {
		appeared, vanished, err := l.Relist(t.Context())
		done <- fmt.Sprint(appeared, vanished, err)
	}()
	<-store.listed
	create(t, w, 3)
	update(t, w, 2, fleet.Running)
	if err := w.Remove(t.Context(), newID(1)); err != nil {
		t.Fatal(err)
	}
	close(store.proceed)
	if got := <-done; got != "[] [] <nil>" {
		t.Error(got)
	}
	if got := ids(l.Instances()); got != "2 3" {
		t.Errorf("instances: %s", got)
	}
}

// slowList lets a test act between a listing's result and its return.
type slowList struct {
	object.Store
	slow            bool
	listed, proceed chan struct{}
}

func (s *slowList) List(ctx context.Context, prefix, token string) (object.Page, error) {
	page, err := s.Store.List(ctx, prefix, token)
	if s.slow {
		s.listed <- struct{}{}
		<-s.proceed
	}
	return page, err
}

// A store that fails during a Load leaves the ledger incomplete, with an error; the next Load
// continues.
func TestLoadFails(t *testing.T) {
	counted, cfg, _ := shard(t, 40)
	faults := objecttest.NewFaults(counted, nil)
	cfg.Store, cfg.CachePath, cfg.Concurrency = faults, "", 1
	l := open(t, cfg)
	defer closeLedger(t, l)
	down := objecttest.Outcome{Fault: objecttest.Dropped}
	faults.Set(objecttest.Always(down))
	if _, err := l.Load(t.Context()); !errors.Is(err, ledger.ErrUnknown) {
		t.Errorf("no listing: %v", err)
	}
	faults.Set(func(r objecttest.Request) objecttest.Outcome {
		if r.Key == key(20) {
			return down
		}
		return objecttest.Outcome{}
	})
	if _, err := l.Load(t.Context()); !errors.Is(err, ledger.ErrUnknown) {
		t.Errorf("one unreadable: %v", err)
	}
	faults.Set(nil)
	before := counted.Counts()
	if s := load(t, l); s.Listed != 40 || len(l.Instances()) != 40 {
		t.Errorf("%+v", s)
	}
	if n := counted.Counts().Sub(before).Get - groupsRead; n > 21 {
		t.Errorf("%d read again", n)
	}
}

func FuzzRecord(f *testing.F) {
	i := pending(1)
	f.Add("default."+i.ID.StorageKey()+".json",
		`{"id":"`+string(i.ID)+`","tenant":"default","group":"web","phase":"pending","epoch":1,"rev":1}`)
	f.Add("default."+i.ID.StorageKey()+".json", `{"id":null,"drain":{"delete_at":"x"}}`)
	f.Add("default."+i.ID.StorageKey()+".json",
		`{"id":"`+string(i.ID)+`","tenant":"default","group":"web","phase":"pending","epoch":1,"rev":9007199254740993}`)
	f.Add("..json", "[]")
	f.Add("default..json", "\x00")
	f.Fuzz(func(t *testing.T, name, body string) {
		store := mem.New(mem.Config{})
		key := "instance/dev-1/" + name
		if object.CheckKey(key) != nil {
			t.Skip()
		}
		put(t, store, key, body)
		cfg := config(t, store)
		cfg.CachePath = ""
		l := open(t, cfg)
		s := load(t, l)
		if len(l.Instances())+len(s.Malformed) != 1 {
			t.Fatalf("%q: neither understood nor reported", name)
		}
		for _, i := range l.Instances() { // readable records are available
			if i.ID.StorageKey() == "" || i.ID.Time().IsZero() || !i.Phase.Valid() {
				t.Fatalf("%+v", i)
			}
			if got, err := l.Fetch(t.Context(), i.Tenant, i.ID); err != nil || got.ID != i.ID {
				t.Fatalf("%+v, %v", got, err)
			}
		}
	})
}
