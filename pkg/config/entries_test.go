package config_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

func tenantOf(t testing.TB, groups string) *config.Entries {
	t.Helper()
	tenant, err := config.ParseEntries([]byte(`{ "epoch": 1, "rev": 2, "writer": "w", "groups": ` + groups + ` }`))
	if err != nil {
		t.Fatalf("ParseEntries: %v", err)
	}
	return tenant
}

// take makes one edit of a group in a draft.
func take(t testing.TB, d *config.Draft, key fleet.GroupKey, edit func(config.Dynamic) config.Dynamic) []string {
	t.Helper()
	before := d.Only(key.Tenant, key.Name)
	names, err := d.Take(key.Tenant, before, edit(before))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestTenantText: the text of a draft is that of the groups that it stands for, and
// reading it again gives the same, whatever was changed in which order.
func TestTenantText(t *testing.T) {
	tenant := tenantOf(t, `{ "m": { "size": 1 } }`)
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string]int{"m": 1}
	for step := range 200 {
		draft := tenant.Draft()
		for range 1 + random.IntN(4) {
			key := fleet.GroupKey{Tenant: "default", Name: fmt.Sprintf("g%d", random.IntN(12))}
			size := random.IntN(5)
			take(t, draft, key, func(d config.Dynamic) config.Dynamic {
				if size == 0 {
					delete(want, key.Name)
					return d.Forget(key)
				}
				want[key.Name] = size
				d, err := d.Upsert(key, config.Change{Size: &size})
				if err != nil {
					t.Fatal(err)
				}
				return d
			})
		}
		h := config.Header{Epoch: 3, Rev: draft.Rev(), Writer: `"<w>"`}
		text, err := draft.Encode(h)
		if err != nil {
			t.Fatal(err)
		}
		draft.Land(h)
		read, err := config.ParseEntries(text)
		if err != nil || read.Header() != h {
			t.Fatalf("step %d: %v, %+v:\n%s", step, err, read, text)
		}
		if again, err := tenant.Encode(h); err != nil || string(again) != string(text) || len(read.Differing(tenant)) > 0 {
			t.Fatalf("step %d: landed as\n%s, written as\n%s", step, again, text)
		}
		have := map[string]int{}
		for name, e := range read.Dynamic("default").Groups["default"] {
			have[name] = *e.Size
		}
		if !reflect.DeepEqual(have, want) || !slices.IsSorted(read.Names()) {
			t.Fatalf("step %d: have %v, want %v", step, have, want)
		}
	}
}

// TestDraftCountsChanges: each change has a rev of its own, also where several are
// written at once, so that no revision of a group comes twice.
func TestDraftCountsChanges(t *testing.T) {
	shard, tenant := parse(t, scene), tenantOf(t, `{}`)
	draft := tenant.Draft()
	seen := map[uint64]bool{}
	for n := range 10 {
		size := n % 2
		take(t, draft, own, func(d config.Dynamic) config.Dynamic {
			if n == 5 {
				return d.Forget(own)
			}
			return upsertOnly(t, shard, d, own, config.Change{Template: ptr("knd"), Size: &size})
		})
		if e, ok := draft.Entry(own.Name); ok {
			if seen[e.Revision] || e.Revision > draft.Rev() {
				t.Errorf("change %d has revision %d at rev %d", n, e.Revision, draft.Rev())
			}
			seen[e.Revision] = true
		}
	}
	before := draft.Rev()
	if names := take(t, draft, own, func(d config.Dynamic) config.Dynamic { return d }); len(names) > 0 || draft.Rev() != before {
		t.Errorf("no change changed %v, rev %d", names, draft.Rev())
	}
}

func upsertOnly(t testing.TB, s *config.Shard, d config.Dynamic, key fleet.GroupKey, c config.Change) config.Dynamic {
	t.Helper()
	next, err := s.Upsert(d, key, c, config.Checks{})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// TestDraftHasALimit: a change that makes the object too large is refused alone.
func TestDraftHasALimit(t *testing.T) {
	draft := tenantOf(t, `{}`).Draft()
	grow := func(name string, bytes int) error {
		key := fleet.GroupKey{Tenant: "default", Name: name}
		before := draft.Only(key.Tenant, key.Name)
		after, err := before.Upsert(key, config.Change{Vars: map[string]any{"a": strings.Repeat("x", bytes)}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = draft.Take(key.Tenant, before, after)
		return err
	}
	if err := grow("a", config.MaxSize/2); err != nil {
		t.Error(err)
	}
	if err := grow("b", config.MaxSize/2); err == nil || !strings.Contains(err.Error(), fmt.Sprint(config.MaxSize)) {
		t.Errorf("too large: %v", err)
	}
	if err := grow("c", config.MaxSize/4); err != nil {
		t.Error(err)
	}
	text, err := draft.Encode(config.Header{Epoch: 1, Rev: 3, Writer: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if read, err := config.ParseEntries(text); err != nil || !slices.Equal(read.Names(), []string{"a", "c"}) {
		t.Errorf("read %v, %v", read.Names(), err)
	}
}

// TestTenantKeepsWhatItDoesNotKnow: fields of a newer version, beside the groups and in
// them, and an entry that can't be read.
func TestTenantKeepsWhatItDoesNotKnow(t *testing.T) {
	tenant, err := config.ParseEntries([]byte(`{ "later": {"a": [2.50]}, "rev": 7,
		"groups": { "web": { "size": 2, "newer": 1 }, "odd": { "size": "two" } }, } // by hand`))
	if err != nil {
		t.Fatal(err)
	}
	draft := tenant.Draft()
	size := 3
	web := fleet.GroupKey{Tenant: "default", Name: "web"}
	take(t, draft, web, func(d config.Dynamic) config.Dynamic {
		d, err := d.Upsert(web, config.Change{Size: &size})
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
	text, err := draft.Encode(config.Header{Epoch: 1, Rev: 8, Writer: "w"})
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.Join(strings.Fields(string(text)), "")
	want := `{"epoch":1,"rev":8,"writer":"w","groups":{"odd":{"size":"two"},"web":{"size":3,"newer":1}},"later":{"a":[2.50]}}`
	if plain != want {
		t.Errorf("written\n%s, want\n%s", plain, want)
	}
	if p := tenant.Foreign(); len(p) != 1 || p[0].Path != "later" {
		t.Errorf("reported: %v", p)
	}
}

// TestMoved: what stands in the place of all tenants' groups is read as that, and as
// nothing that says that there are no groups.
func TestMoved(t *testing.T) {
	d, err := config.ParseDynamic([]byte(`{ "rev": 4, "later": 1, "groups": { "default": { "web": { "size": 2 } } } }`))
	if err != nil {
		t.Fatal(err)
	}
	h := config.Header{Epoch: 2, Rev: 5, Writer: "w"}
	for _, d := range []config.Dynamic{d, {}} {
		text, err := d.Moved(h, "groups/dev-1/{tenant}.jsonc")
		if err != nil {
			t.Fatal(err)
		}
		if read, ok := config.ParseMoved(text); !ok || read != h {
			t.Errorf("read as %+v, %v: %s", read, ok, text)
		}
		if _, err := config.ParseDynamic(text); err == nil || !strings.Contains(err.Error(), "groups: ") {
			t.Errorf("as groups it is read with %v: %s", err, text)
		}
	}
	for text, want := range map[string]bool{
		`{"moved": true}`: true, `{"moved": false}`: false, `{}`: false,
		`{"moved": true, "groups": {}}`: false, `{"groups": {}}`: false, `{"moved": 1}`: false, `{`: false,
	} {
		if _, ok := config.ParseMoved([]byte(text)); ok != want {
			t.Errorf("%s is read as moved: %v", text, ok)
		}
	}
	odd, err := config.ParseDynamic([]byte(`{ "moved": true, "groups": {} }`))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := odd.Moved(h, "x"); err != nil || !isMoved(text) {
		t.Errorf("%v: %s", err, text)
	}
}

func isMoved(text []byte) bool { _, ok := config.ParseMoved(text); return ok }
