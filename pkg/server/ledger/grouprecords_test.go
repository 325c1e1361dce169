package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	configs "github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/ledger"
)

var web = fleet.GroupKey{Tenant: "default", Name: "web"}

const webAt = "groups/dev-1/default/web.json"

func still() float64 { return 0 }

// decoded returns the record of a text.
func decoded(text string) configs.GroupRecord {
	r, err := configs.DecodeGroup([]byte(text))
	if err != nil {
		panic(err)
	}
	return r
}

// resize returns an edit that sets the size.
func resize(n int) ledger.GroupEdit {
	return func(ledger.GroupState) (configs.GroupRecord, ledger.GroupWrite, error) {
		return decoded(fmt.Sprintf(`{"size": %d}`, n)), ledger.WriteOnce, nil
	}
}

// keeps returns an edit that changes nothing and is refused.
func keeps(refusal error) ledger.GroupEdit {
	return func(now ledger.GroupState) (configs.GroupRecord, ledger.GroupWrite, error) {
		return now.Record, ledger.WriteOnce, refusal
	}
}

func edit(t *testing.T, w *ledger.Writer, key fleet.GroupKey, e ledger.GroupEdit) {
	t.Helper()
	if refusal, err := w.EditGroup(t.Context(), key, still, e); refusal != nil || err != nil {
		t.Fatalf("edit %s: %v, %v", key, refusal, err)
	}
}

// sizeOf returns the size of a record; -1 if there is none.
func sizeOf(r configs.GroupRecord) int {
	if r.Size == nil {
		return -1
	}
	return *r.Size
}

// counted counts the calls of a store, by verb.
type counted map[object.Verb]int

func counting(inner object.Store) (*objecttest.Faults, counted) {
	calls, store := counted{}, objecttest.NewFaults(inner, nil)
	store.Set(func(r objecttest.Request) objecttest.Outcome {
		calls[r.Verb]++
		return objecttest.Outcome{}
	})
	return store, calls
}

// TestEditGroup: an edit is one conditional write; a no-op edit needs none if the record is of
// this term, unless it is always written, and one otherwise, also for a refusal.
func TestEditGroup(t *testing.T) {
	store, calls := counting(mem.New(mem.Config{HashETags: true}))
	l := open(t, config(t, store))
	defer closeLedger(t, l)
	load(t, l)
	w := l.Lead(term{epoch: 3})
	puts := func(want int) {
		t.Helper()
		if calls[object.VerbPut] != want {
			t.Errorf("%d writes, want %d", calls[object.VerbPut], want)
		}
		clear(calls)
	}
	edit(t, w, web, resize(5))
	puts(1)
	r := l.GroupState(web).Record
	if sizeOf(r) != 5 || r.Epoch != 3 || r.Rev != 3<<20+1 || r.Writer == "" {
		t.Errorf("after the first edit: %+v", r)
	}
	edit(t, w, web, keeps(nil))
	puts(0)
	edit(t, w, web, func(now ledger.GroupState) (configs.GroupRecord, ledger.GroupWrite, error) {
		return now.Record, ledger.WriteAlways, nil
	})
	puts(1)
	none := errors.New("none")
	if refusal, err := w.EditGroup(t.Context(), web, still, keeps(none)); !errors.Is(refusal, none) || err != nil {
		t.Errorf("refused: %v, %v", refusal, err)
	}
	puts(0)
	refuse := func(ledger.GroupState) (configs.GroupRecord, ledger.GroupWrite, error) {
		return configs.GroupRecord{}, ledger.WriteNothing, none
	}
	absent := fleet.GroupKey{Tenant: "default", Name: "no"}
	if refusal, err := w.EditGroup(t.Context(), absent, still, refuse); !errors.Is(refusal, none) || err != nil {
		t.Errorf("refused at once: %v, %v", refusal, err)
	}
	puts(0)

	w = l.Lead(term{epoch: 4})
	if refusal, err := w.EditGroup(t.Context(), web, still, keeps(none)); !errors.Is(refusal, none) || err != nil {
		t.Errorf("refused in the next term: %v, %v", refusal, err)
	}
	puts(1)
	if r := l.GroupState(web).Record; r.Epoch != 4 || r.Rev != 4<<20+1 || sizeOf(r) != 5 {
		t.Errorf("in the next term: %+v", r)
	}
}

// TestEditGroupConflicts: an edit is applied to what another write left.
func TestEditGroupConflicts(t *testing.T) {
	inner := mem.New(mem.Config{HashETags: true})
	l := open(t, config(t, inner))
	defer closeLedger(t, l)
	load(t, l)
	w := l.Lead(term{epoch: 3})
	put(t, inner, webAt, `{"epoch":2,"rev":9000000,"writer":"other","size":9}`)
	var seen []int
	edit(t, w, web, func(now ledger.GroupState) (configs.GroupRecord, ledger.GroupWrite, error) {
		seen = append(seen, sizeOf(now.Record))
		return decoded(`{"size": 1}`), ledger.WriteOnce, nil
	})
	if !slices.Equal(seen, []int{-1, 9}) || l.GroupState(web).Record.Rev != 9000001 {
		t.Errorf("decided on %v, and wrote %+v", seen, l.GroupState(web).Record)
	}
}

// TestDoubtfulGroup: after a write of unknown outcome the record is read and written before any
// edit returns.
func TestDoubtfulGroup(t *testing.T) {
	for _, landed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inner := mem.New(mem.Config{HashETags: true})
			store := objecttest.NewFaults(inner, nil)
			l := open(t, config(t, store))
			defer closeLedger(t, l)
			load(t, l)
			w := l.Lead(term{epoch: 3})
			edit(t, w, web, resize(5))
			store.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Hung}))
			within, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			if _, err := w.EditGroup(within, web, still, resize(6)); err == nil {
				t.Fatal("an edit without an answer is done")
			}
			if got := l.DoubtfulGroups(); !slices.Equal(got, []fleet.GroupKey{web}) {
				t.Errorf("in doubt: %v", got)
			}
			store.Set(nil)
			want := 5
			if landed {
				put(t, inner, webAt, `{"epoch":3,"rev":2,"writer":"server-1","size":6}`)
				want = 6
			}
			writes := 0
			store.Set(func(r objecttest.Request) objecttest.Outcome {
				if r.Verb == object.VerbPut {
					writes++
				}
				return objecttest.Outcome{}
			})
			edit(t, w, web, keeps(nil))
			if r := l.GroupState(web).Record; sizeOf(r) != want || writes != 1 || len(l.DoubtfulGroups()) > 0 {
				t.Errorf("landed %v: %+v after %d writes, in doubt: %v", landed, r, writes, l.DoubtfulGroups())
			}
		})
	}
}

// TestLaterGroup: a record of a later term ends this one, and is unchanged.
func TestLaterGroup(t *testing.T) {
	inner := mem.New(mem.Config{HashETags: true})
	put(t, inner, webAt, `{"epoch":9,"rev":7,"writer":"other","size":9}`)
	l := open(t, config(t, inner))
	defer closeLedger(t, l)
	load(t, l)
	var risen uint64
	w := l.Lead(term{epoch: 3, risen: &risen})
	if _, err := w.EditGroup(t.Context(), web, still, resize(1)); !errors.Is(err, ledger.ErrUnknown) || risen != 9 {
		t.Errorf("edit: %v, rises above %d", err, risen)
	}
}

// TestGroupsAreKnown: a takeover reads only changed records, also after a restart, and unlisted
// ones by key. The known version of a record that is gone, or older, is kept.
func TestGroupsAreKnown(t *testing.T) {
	inner := mem.New(mem.Config{HashETags: true})
	listing := objecttest.NewListing(inner)
	store, calls := counting(listing)
	cfg := config(t, store)
	l := open(t, cfg)
	load(t, l)
	w := l.Lead(term{epoch: 1})
	keys := []fleet.GroupKey{web, {Tenant: "default", Name: "api"}, {Tenant: "prod", Name: "web"}}
	for n, key := range keys {
		edit(t, w, key, resize(n))
		edit(t, w, key, resize(n+1))
	}
	closeLedger(t, l)
	restart := func(reads int) *ledger.Ledger {
		t.Helper()
		clear(calls)
		l := open(t, cfg)
		load(t, l)
		if got := calls[object.VerbGet] - 1; got != reads { // one read is for groups of a version before the first release
			t.Errorf("%d reads, want %d", got, reads)
		}
		return l
	}
	expect := func(l *ledger.Ledger, key fleet.GroupKey, record, known int) {
		t.Helper()
		s := l.GroupState(key)
		if got, also := sizeOf(s.Record), sizeOf(s.Known); got != record || also != known {
			t.Errorf("%s: size %d, known %d, want %d, %d", key, got, also, record, known)
		}
	}
	l = restart(0)
	for n, key := range keys {
		expect(l, key, n+1, -1)
	}
	closeLedger(t, l)

	listing.Hide(func(k string) bool { return k == webAt })
	l = restart(1)
	expect(l, web, 1, -1)
	if err := inner.Delete(t.Context(), webAt); err != nil {
		t.Fatal(err)
	}
	if err := l.RelistGroups(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(l, web, -1, 1)
	closeLedger(t, l)
	l = restart(1)
	expect(l, web, -1, 1) // another process, from the cache
	listing.Hide(nil)
	put(t, inner, webAt, `{"epoch":1,"rev":1,"writer":"w","size":7}`)
	if err := l.RelistGroups(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(l, web, 7, 1) // an older one was restored
	closeLedger(t, l)
	l = restart(1)
	expect(l, web, 7, 1)
	put(t, inner, webAt, `{"size":8}`)
	if err := l.ReadGroup(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	expect(l, web, 8, -1) // written externally
	put(t, inner, webAt, `{"size":-8}`)
	if err := l.RelistGroups(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := l.GroupState(web); s.Err == nil || sizeOf(s.Record) != 8 {
		t.Errorf("a record that can't be read: %+v", s)
	}
	edit(t, l.Lead(term{epoch: 2}), web, resize(2))
	if s := l.GroupState(web); s.Err != nil || sizeOf(s.Record) != 2 {
		t.Errorf("replaced: %+v", s)
	}
	closeLedger(t, l)
}

// TestForeignGroups: objects that are not a group's are reported, and those of a version
// before the first release are refused.
func TestForeignGroups(t *testing.T) {
	l, _, store := bare(t)
	for _, key := range []string{
		"groups/dev-1/prod.jsonc", "groups/dev-1/Odd/web.json", "groups/dev-1/prod/Odd.json", "groups/dev-11/a/b.json",
	} {
		put(t, store, key, "{}")
	}
	load(t, l)
	var found []string
	for key, err := range l.ForeignGroups() {
		found = append(found, key+": "+err.Error())
	}
	slices.Sort(found)
	want := []string{"groups/dev-1/Odd/web.json: tenant", "groups/dev-1/prod.jsonc: object name", "groups/dev-1/prod/Odd.json: group"}
	if len(found) != len(want) {
		t.Fatalf("found %v", found)
	}
	for n, f := range found {
		if !strings.HasPrefix(f, want[n]) {
			t.Errorf("found %s, want %s…", f, want[n])
		}
	}
	put(t, store, "groups/dev-1.jsonc", "{}")
	_, err := l.Load(t.Context())
	if err == nil || !strings.Contains(err.Error(), "groups/dev-1.jsonc is of a version before the first release") {
		t.Errorf("load: %v", err)
	}
}
