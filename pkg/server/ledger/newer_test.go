package ledger_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// newer are fields of a later version, in the record and its nested objects.
const newer = `{"zeal":{"b":[1,2.50]},"attested_by":"tpm","provider":{"host":"h-1"},` +
	`"hashes":{"image":"9007199254740993"},"drain":{"asked_by":"x"}}`

// graft adds the fields of other to a stored object, like a newer version that shares the store.
func graft(t *testing.T, store object.Store, key, other string) {
	t.Helper()
	o, err := store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	var there, more map[string]any
	for text, into := range map[string]*map[string]any{string(o.Body): &there, other: &more} {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range more {
		object, isObject := there[name].(map[string]any)
		if !isObject {
			there[name] = value
			continue
		}
		for inner, v := range value.(map[string]any) {
			object[inner] = v
		}
	}
	body, err := json.Marshal(there)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), key, body, object.IfMatch(o.ETag)); err != nil {
		t.Fatal(err)
	}
}

func stored(t *testing.T, store object.Store, key string) string {
	t.Helper()
	o, err := store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(o.Body)
}

// holds checks that a body has the newer fields.
func holds(t *testing.T, body string) {
	t.Helper()
	for _, field := range []string{
		`"zeal":{"b":[1,2.50]}`, `"attested_by":"tpm"`, `"host":"h-1"`, `"image":"9007199254740993"`, `"asked_by":"x"`,
	} {
		if strings.Count(body, field) != 1 {
			t.Errorf("%s is there %d times, want once: %s", field, strings.Count(body, field), body)
		}
	}
}

// TestNewerFieldsOutliveAnUpdate: updating a record of a newer version keeps its fields,
// whether it was read from the store or the cache file.
func TestNewerFieldsOutliveAnUpdate(t *testing.T) {
	store := mem.New(mem.Config{HashETags: true})
	cfg := config(t, store)
	l := open(t, cfg)
	w := l.Lead(term{epoch: 1})
	create(t, w, 1)
	update(t, w, 1, fleet.Running)
	if _, err := w.Update(t.Context(), newID(1), func(i *fleet.Instance) error {
		i.Phase, i.Drain = fleet.Draining, &fleet.Drain{Reason: "r", DeleteAt: start}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	graft(t, store, key(1), newer)
	if _, _, err := l.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	closeLedger(t, l)

	l = open(t, cfg)
	defer closeLedger(t, l)
	if stats := load(t, l); stats.Cached != 1 || len(stats.Malformed) > 0 {
		t.Errorf("loaded %+v, want one from the cache", stats)
	}
	w = l.Lead(term{epoch: 2})
	acked := start.Add(time.Minute)
	if _, err := w.Update(t.Context(), newID(1), func(i *fleet.Instance) error {
		i.Drain.AckedAt, i.Provider.ID, i.Hashes.Runtime = &acked, "vm-1", "r2"
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	holds(t, stored(t, store, key(1)))
	update(t, w, 1, fleet.Deleting)
	body := stored(t, store, key(1))
	holds(t, body)
	var i fleet.Instance
	err := json.Unmarshal([]byte(body), &i)
	if err != nil || i.Phase != fleet.Deleting || i.Provider.ID != "vm-1" || i.Hashes.Runtime != "r2" || i.Rev != 5 {
		t.Errorf("stored %+v, %v", i, err)
	}
	if i, _ := l.Get(newID(1)); !i.Drain.AckedAt.Equal(acked) {
		t.Errorf("in memory %+v", i.Drain)
	}
}

// TestNewerRecordIsAdoptedAfterAConflict: a concurrent write is read back with its unknown
// fields, and the next update keeps them.
func TestNewerRecordIsAdoptedAfterAConflict(t *testing.T) {
	store := mem.New(mem.Config{HashETags: true})
	l := open(t, config(t, store))
	defer closeLedger(t, l)
	w := l.Lead(term{epoch: 1})
	create(t, w, 1)
	graft(t, store, key(1), newer)
	if _, err := w.Update(t.Context(), newID(1), move(fleet.Running)); err == nil {
		t.Error("a record that changed in between was written over")
	}
	update(t, w, 1, fleet.Running)
	holds(t, stored(t, store, key(1)))
}

// TestUnknownPhaseIsMalformed: an unknown phase can't be ignored like an unknown field.
func TestUnknownPhaseIsMalformed(t *testing.T) {
	store := mem.New(mem.Config{HashETags: true})
	l := open(t, config(t, store))
	defer closeLedger(t, l)
	create(t, l.Lead(term{epoch: 1}), 1)
	graft(t, store, key(1), `{"phase":"hibernating"}`)
	other := open(t, config(t, store))
	defer closeLedger(t, other)
	stats := load(t, other)
	if m := stats.Malformed; len(m) != 1 || m[0].ID != newID(1) || !strings.Contains(m[0].Err.Error(), `phase: "hibernating"`) {
		t.Errorf("malformed: %+v", stats.Malformed)
	}
}

// TestNewerFieldsOutliveRetirement: a request keeps the fields of a newer version when it is
// retired.
func TestNewerFieldsOutliveRetirement(t *testing.T) {
	l, _, store := bare(t)
	w := l.Lead(term{epoch: 2})
	r, err := w.Claim(t.Context(), asked(1))
	if err != nil {
		t.Fatal(err)
	}
	graft(t, store, askedAt, `{"asked_by":"x","origin":{"zone":"z"}}`)
	if again, err := w.Claim(t.Context(), asked(2)); err != nil || again.ID != r.ID {
		t.Errorf("claimed again as %v, %v", again.ID, err)
	}
	i := pending(1)
	i.OnDemand, i.RequestKey = true, r.Key
	if _, err := w.Create(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	update(t, w, 1, fleet.Deleting)
	update(t, w, 1, fleet.Deleted)
	if err := w.Remove(t.Context(), newID(1)); err != nil {
		t.Fatal(err)
	}
	body := stored(t, store, askedAt)
	for _, want := range []string{`"gone":true`, `"asked_by":"x"`, `"origin":{"zone":"z"}`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing: %s", want, body)
		}
	}
}

// TestRecordsHaveNoListsOfObjects: an element's unknown field would be lost, because the element
// can't be identified after a change.
func TestRecordsHaveNoListsOfObjects(t *testing.T) {
	var check func(path string, in reflect.Type)
	check = func(path string, in reflect.Type) {
		for in.Kind() == reflect.Pointer {
			in = in.Elem()
		}
		switch in.Kind() {
		case reflect.Slice, reflect.Array, reflect.Map:
			if elem := in.Elem(); elem.Kind() == reflect.Struct || elem.Kind() == reflect.Pointer {
				t.Errorf("%s is a collection of %s", path, elem)
			}
		case reflect.Struct:
			if in == reflect.TypeFor[time.Time]() {
				return
			}
			for n := range in.NumField() {
				check(path+"."+in.Field(n).Name, in.Field(n).Type)
			}
		default:
		}
	}
	check("Instance", reflect.TypeFor[fleet.Instance]())
	check("Request", reflect.TypeFor[ledger.Request]())
}
