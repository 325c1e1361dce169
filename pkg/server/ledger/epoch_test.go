package ledger_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

// After the election record is lost, the first epoch exceeds every recorded one, even if no
// record is readable.
func TestHighestEpochCountsWhatCanBeRead(t *testing.T) {
	for _, tt := range []struct {
		name, key, body string
		want            uint64
	}{
		{"nothing", "other", "", 0},
		{"a group", "groups/dev-1/prod/web.json", `{"epoch": 6, "rev": 1, "writer": "w", "size": 1}`, 6},
		{"a group with comments", "groups/dev-1/prod/web.json", "// by hand\n{\"rev\": true, \"epoch\": 8, /* x */ \"size\": [],}", 8},
		{"a group of another shard", "groups/dev-2/prod/web.json", `{"epoch": 7}`, 0},
		{"cut off", "groups/dev-1/prod/web.json", `{"epoch": 7, "gro`, 0},
		{"empty", "groups/dev-1/prod/web.json", ``, 0},
		{"no object", "groups/dev-1/prod/web.json", `[7]`, 0},
		{"not at the top", "groups/dev-1/prod/web.json", `{"vars": {"epoch": 7}}`, 0},
		{"no number", "groups/dev-1/prod/web.json", `{"epoch": "7"}`, 0},
		{"negative", "groups/dev-1/prod/web.json", `{"epoch": -7}`, 0},
		{"beyond what terms count to", "groups/dev-1/prod/web.json", `{"epoch": 9007199254740993}`, 0},
		{"the last number", "groups/dev-1/prod/web.json", `{"epoch": 9007199254740991}`, 9007199254740991},
		{"damaged", "groups/dev-1/prod/web.json", `{"epoch": 18446744073709551615}`, 0},
		{"malformed record", key(1), `{"epoch": 9, "rev": 0}`, 9},
		{"unreadable record", key(1), `{"epoch": 9`, 0},
	} {
		store := mem.New(mem.Config{})
		put(t, store, tt.key, tt.body)
		cfg := config(t, store)
		cfg.CachePath = ""
		l := open(t, cfg)
		load(t, l)
		if got := l.HighestEpoch(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// Without the groups the highest epoch is unknown, so Load must fail.
func TestLoadFailsWithoutTheGroups(t *testing.T) {
	for _, lost := range []string{"groups/dev-1.jsonc", "groups/dev-1/", "groups/dev-1/prod/web.json"} {
		l, faults, store := bare(t)
		put(t, store, "groups/dev-1/prod/web.json", "{}")
		faults.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Key == lost {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		if _, err := l.Load(t.Context()); err == nil {
			t.Errorf("loaded without %s", lost)
		}
	}
}

// TestRevThatCanOnlyBeDamage: a record with an invalid rev is reported, and the instance keeps
// its last known state; once repaired, the record can be written. The highest readable rev can
// be written, too.
func TestRevThatCanOnlyBeDamage(t *testing.T) {
	l, _, store := bare(t)
	w := l.Lead(term{epoch: 1})
	create(t, w, 1)
	of := func(rev string) string {
		return `{"id":"` + string(newID(1)) + `","tenant":"default","group":"web","phase":"pending","epoch":1,"rev":` + rev + `}`
	}
	for _, rev := range []string{"9007199254740993", "18446744073709551615"} {
		put(t, store, key(1), of(rev))
		if _, _, err := l.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		m := l.Malformed()
		if len(m) != 1 || m[0].Key != key(1) || !strings.Contains(m[0].Err.Error(), "rev: "+rev+", want at most 9007199254740992") {
			t.Errorf("malformed: %v", m)
		}
		if i, ok := l.Get(newID(1)); !ok || i.Rev != 1 {
			t.Errorf("the instance is %+v", i)
		}
	}
	put(t, store, key(1), of("9007199254740992"))
	if _, _, err := l.Relist(t.Context()); err != nil || len(l.Malformed()) > 0 {
		t.Fatalf("%v; malformed %v", err, l.Malformed())
	}
	update(t, w, 1, fleet.Running)
}

// TestFindReadsWhatAListingLacked: a record that memory lacks is read by its key.
func TestFindReadsWhatAListingLacked(t *testing.T) {
	l, _, store := bare(t)
	load(t, l)
	find := func(want bool) {
		t.Helper()
		i, ok, err := l.Find(t.Context(), "default", newID(1))
		if _, known := l.Get(newID(1)); err != nil || ok != want || known != want || ok && i.ID != newID(1) {
			t.Errorf("found %+v, %v, %v; known %v", i, ok, err, known)
		}
	}
	find(false)
	put(t, store, key(1), `{"id":"`+string(newID(1))+`","tenant":"default","group":"web","phase":"running","epoch":1,"rev":5}`)
	find(true)
	put(t, store, key(2), `{"id":"`+string(newID(2))+`","tenant":"default","group":"web","phase":"running","epoch":1,"rev":0}`)
	if _, ok, err := l.Find(t.Context(), "default", newID(2)); ok || err == nil || !strings.Contains(err.Error(), "rev: 0") {
		t.Errorf("one that can't be read: %v, %v", ok, err)
	}
}

func TestVanishedCountsOnlyLivingRecords(t *testing.T) {
	l, _, store := bare(t)
	w := l.Lead(term{epoch: 1})
	for n := range 4 {
		create(t, w, n)
	}
	for _, p := range []fleet.Phase{fleet.Deleting, fleet.Deleted} {
		update(t, w, 3, p)
	}
	for _, n := range []int{0, 1, 3} {
		if err := store.Delete(t.Context(), key(n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{2, 0} {
		if _, _, err := l.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := l.Vanished(); got != want {
			t.Errorf("%d vanished, want %d", got, want)
		}
	}
}

// A record of a later term is not changed, and its epoch is reported: if it is damage, the
// conflict would be permanent.
func TestLaterEpochIsTold(t *testing.T) {
	l, _, store := bare(t)
	create(t, l.Lead(term{epoch: 9}), 1)
	var risen uint64
	w := l.Lead(term{epoch: 2, risen: &risen})
	if _, err := w.Update(t.Context(), newID(1), move(fleet.Running)); !isConflict(err) || risen != 9 {
		t.Errorf("update: %v; %d was told", err, risen)
	}
	risen = 0
	if err := w.Remove(t.Context(), newID(1)); !isConflict(err) || risen != 9 {
		t.Errorf("remove: %v; %d was told", err, risen)
	}
	// An epoch above the maximum is damage, and the instance keeps its last known state.
	put(t, store, key(1), `{"id":"`+string(newID(1))+`","tenant":"default","group":"web","phase":"running","epoch":9007199254740993,"rev":5}`)
	if _, _, err := l.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := l.Malformed()
	if len(m) != 1 || m[0].Key != key(1) || !strings.Contains(m[0].Err.Error(), "epoch: 9007199254740993") {
		t.Errorf("malformed: %v", m)
	}
	if i, ok := l.Get(newID(1)); !ok || i.Epoch != 9 {
		t.Errorf("the instance is %+v", i)
	}
}
