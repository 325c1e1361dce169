package config_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

const (
	idA = fleet.InstanceID("knd01hf7yat00e00r0000000000g0")
	idB = fleet.InstanceID("knd01hf7yat00e00r0000000000g2")
	idC = fleet.InstanceID("knd01hf7yat00e00r0000000000g4")
)

func ptr[T any](v T) *T { return &v }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// change applies a change that must be accepted, and checks that its input is unchanged, that
// it is idempotent, also after storing the result, and that the revision increases if anything
// changes and never decreases.
func change(t testing.TB, s *config.Shard, key fleet.GroupKey, r config.GroupRecord, c config.Change) config.GroupRecord {
	t.Helper()
	before := encoded(t, r)
	next, err := s.ChangeGroup(key, r, c, config.Checks{})
	if err != nil {
		t.Fatalf("ChangeGroup %s: %v", key, err)
	}
	if encoded(t, r) != before {
		t.Fatal("the input changed")
	}
	for _, is := range []config.GroupRecord{next, stored(t, next)} {
		again, err := s.ChangeGroup(key, is, c, config.Checks{})
		if err != nil || !reflect.DeepEqual(again, next) {
			t.Fatalf("the same change again: %v\n%s\n%s", err, encoded(t, next), encoded(t, again))
		}
	}
	checkRevision(t, r, next)
	return next
}

// checkRevision checks that the revision increases if a record changes.
func checkRevision(t testing.TB, was, is config.GroupRecord) {
	t.Helper()
	if is.Revision < was.Revision || is.Same(was) != (is.Revision == was.Revision) {
		t.Fatalf("revision %d after %d:\n%s\n%s", is.Revision, was.Revision, encoded(t, was), encoded(t, is))
	}
}

func encoded(t testing.TB, r config.GroupRecord) string {
	t.Helper()
	text, err := r.Encode()
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	return string(text)
}

// stored encodes and decodes a record, which must not change it.
func stored(t testing.TB, r config.GroupRecord) config.GroupRecord {
	t.Helper()
	text := encoded(t, r)
	again := record(t, text)
	if again.Header != r.Header || r.Stored() && !again.Same(r) || encoded(t, again) != text {
		t.Fatalf("stored and read again: %s\n%s", text, encoded(t, again))
	}
	return again
}

func group(t testing.TB, s *config.Shard, key fleet.GroupKey, r config.GroupRecord) fleet.Group {
	t.Helper()
	g, ok, _ := s.ResolveGroup(key, r)
	if !ok {
		t.Fatalf("there is no group %s", key)
	}
	return g
}

func TestOnlySizeChangesSize(t *testing.T) {
	s := parse(t, scene)
	for _, key := range []fleet.GroupKey{web, bare, prod} {
		before := group(t, s, key, config.GroupRecord{})
		after := group(t, s, key, change(t, s, key, config.GroupRecord{}, config.Change{Size: ptr(5)}))
		before.Size, before.Revision, before.RecordRevision = 5, 1, 1
		if !reflect.DeepEqual(after, before) {
			t.Errorf("%s is %+v, want %+v", key, after, before)
		}
	}
}

func TestLifeOfAGroupOfItsOwn(t *testing.T) {
	s := parse(t, scene)
	h := config.Header{Epoch: 4, Rev: 2, Writer: "w"}
	r := change(t, s, own, config.GroupRecord{Header: h}, config.Change{
		Template: ptr("knd"), Size: ptr(2), Vars: map[string]any{"a": 1.0, "b": map[string]any{"c": 2.5}},
	})
	if g := group(t, s, own, r); g.Size != 2 || g.Vars["a"] != int64(1) || g.Disabled != "" {
		t.Fatalf("made %+v", g)
	}
	if r.Header != h {
		t.Errorf("the header became %+v", r.Header)
	}
	r = change(t, s, own, r, config.Change{Size: ptr(1), Remove: []fleet.InstanceID{idB, idA}})
	r = change(t, s, own, r, config.Change{Size: ptr(0), Remove: []fleet.InstanceID{idA, idC}})
	if g := group(t, s, own, r); !reflect.DeepEqual(g.Leaving, []fleet.InstanceID{idA, idB, idC}) || g.Vars["a"] != int64(1) {
		t.Fatalf("scaled to %+v", g)
	}
	settled := r.ClearLeaving([]fleet.InstanceID{idA, idC, idA})
	if g := group(t, s, own, settled); !reflect.DeepEqual(g.Leaving, []fleet.InstanceID{idB}) || settled.Revision != r.Revision {
		t.Errorf("settled to %+v", g)
	}
	if len(r.Leaving) != 3 {
		t.Error("Settle changed its input")
	}
	if again := settled.ClearLeaving([]fleet.InstanceID{idA, idC}); !reflect.DeepEqual(again, settled) {
		t.Errorf("settled again: %+v", again)
	}
	r = change(t, s, own, stored(t, settled.ClearLeaving([]fleet.InstanceID{idB})),
		config.Change{Vars: map[string]any{}, InstanceType: ptr("huge"), SubnetPool: ptr("workers")})
	if g := group(t, s, own, r); g.Vars["a"] != nil || g.InstanceType != "huge" || g.Leaving != nil {
		t.Errorf("changed to %+v", g)
	}
	r = change(t, s, own, r, config.Change{InstanceType: ptr("")})
	if g := group(t, s, own, r); g.InstanceType != "small" {
		t.Errorf("an empty instance type gives %+v", g)
	}
}

// TestEndOfAGroupOfItsOwn: a removed group is recreated only with a template, before its
// record is a tombstone and after; its revision always increases.
func TestEndOfAGroupOfItsOwn(t *testing.T) {
	s := parse(t, scene)
	r := record(t, `{ "epoch": 1, "rev": 2, "writer": "w", "template": "knd", "size": 2, "leaving": ["`+string(idA)+`"], "revision": 5 }`)
	removed, err := s.RemoveGroup(own, r, config.By{})
	if err != nil {
		t.Fatal(err)
	}
	if g := group(t, s, own, removed); !g.Removed || g.Size != 0 || g.Leaving != nil || g.Kind != "knd" {
		t.Errorf("removed is %+v", g)
	}
	checkRevision(t, r, stored(t, removed))
	if r.Removed || *r.Size != 2 || len(r.Leaving) != 1 {
		t.Error("RemoveGroup changed its input")
	}
	if again, err := s.RemoveGroup(own, removed, config.By{}); err != nil || !reflect.DeepEqual(again, removed) {
		t.Errorf("removing again: %v", err)
	}
	if _, err := s.ChangeGroup(own, removed, config.Change{Size: ptr(3)}, config.Checks{}); !errors.Is(err, config.ErrRemoved) {
		t.Errorf("scaling a removed group gives %v", err)
	}
	anew := change(t, s, own, removed, config.Change{Template: ptr("knd")})
	if g := group(t, s, own, anew); g.Removed || g.Size != 4 {
		t.Errorf("made anew: %+v", g)
	}

	gone := removed.Forget(noon.Add(time.Millisecond).In(time.FixedZone("x", 3600)))
	if gone.Exists() || !gone.Stored() || gone.Revision != removed.Revision+1 || gone.Header != removed.Header || !removed.Exists() {
		t.Errorf("forgotten is %+v, and before that %+v", gone, removed)
	}
	if want := `{"epoch":1,"rev":2,"writer":"w","deleted_at":"2026-03-01T12:00:00Z","revision":7}`; encoded(t, gone) != want {
		t.Errorf("the tombstone is %s, want %s", encoded(t, gone), want)
	}
	if again := gone.Forget(noon.Add(time.Hour)); !reflect.DeepEqual(again, gone) {
		t.Errorf("forgotten again: %+v", again)
	}
	if _, ok, problems := s.ResolveGroup(own, gone); ok || problems != nil {
		t.Errorf("a tombstone is a group: %v", problems)
	}
	if _, err := s.ChangeGroup(own, gone, config.Change{Size: ptr(3)}, config.Checks{}); !errors.Is(err, config.ErrNoGroup) {
		t.Errorf("scaling one that is gone gives %v", err)
	}
	if _, err := s.RemoveGroup(own, gone, config.By{}); !errors.Is(err, config.ErrNoGroup) {
		t.Errorf("removing one that is gone gives %v", err)
	}
	for _, is := range []config.GroupRecord{gone, stored(t, gone)} {
		back := change(t, s, own, is, config.Change{Template: ptr("knd"), Create: true})
		if back.Revision != gone.Revision+1 || !back.Exists() || back.DeletedAt != nil || back.Size != nil {
			t.Errorf("made again: %+v", back)
		}
	}
}

// TestSince: no revision of a group is reused, even if its record was gone in between, or is
// unreadable.
func TestSince(t *testing.T) {
	s, c := parse(t, scene), config.Change{Template: ptr("knd"), Size: ptr(1)}
	unreadable := config.UnreadableGroup(config.Header{}, errors.New("damaged"))
	for name, r := range map[string]config.GroupRecord{"none": {}, "unreadable": unreadable} {
		r = r.Since(8).Since(3)
		if next := change(t, s, own, r, c); next.Revision != 9 {
			t.Errorf("%s: the next revision is %d, want 9", name, next.Revision)
		}
	}
	if gone := unreadable.Since(8).Remove(); gone.Revision != 9 || gone.Unreadable() {
		t.Errorf("an unreadable one, removed, is %+v", gone)
	}
	for _, text := range []string{`{ "size": 2, "revision": 5 }`, `{ "deleted_at": "2026-03-01T12:00:00Z", "revision": 5 }`} {
		r := record(t, text)
		if !r.Since(8).Same(r) {
			t.Errorf("%s became %+v", text, r.Since(8))
		}
		if next := change(t, s, own, r.Since(8), c); next.Revision != 9 {
			t.Errorf("%s: the next revision is %d, want 9", text, next.Revision)
		}
	}
}

func TestEditsOfWhatIsNotThere(t *testing.T) {
	s, none := parse(t, scene), config.GroupRecord{}
	if _, err := s.ChangeGroup(own, none, config.Change{Size: ptr(1)}, config.Checks{}); !errors.Is(err, config.ErrNoGroup) {
		t.Errorf("scaling gives %v", err)
	}
	if _, err := s.RemoveGroup(own, none, config.By{}); !errors.Is(err, config.ErrNoGroup) {
		t.Errorf("removing gives %v", err)
	}
	for name, after := range map[string]config.GroupRecord{"Remove": none.Remove(), "Settle": none.ClearLeaving([]fleet.InstanceID{idA})} {
		if after.Stored() {
			t.Errorf("%s made %+v", name, after)
		}
	}
}

func TestRestrictedEditing(t *testing.T) {
	s, none := parse(t, scene), config.GroupRecord{}
	for field, c := range map[string]config.Change{
		"template":    {Template: ptr("knc"), Size: ptr(1)},
		"subnet_pool": {SubnetPool: ptr("control"), Size: ptr(1)},
	} {
		_, err := s.ChangeGroup(web, none, c, config.Checks{})
		if !errors.Is(err, config.ErrRestricted) || !strings.Contains(err.Error(), field+": set by static config") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := s.RemoveGroup(web, none, config.By{}); !errors.Is(err, config.ErrRestricted) {
		t.Errorf("removing gives %v", err)
	}
	// Repeating static config's values is not a change.
	r := change(t, s, web, none, config.Change{
		Template: ptr("knd"), SubnetPool: ptr("workers"), Size: ptr(3), InstanceType: ptr("huge"), Vars: map[string]any{"x": true},
	})
	if got, want := mustJSON(r.Entry), `{"size":3,"instance_type":"huge","vars":{"x":true},"replaced":{},"revision":1}`; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
	change(t, s, web, none, config.Change{SubnetPool: ptr("")})
	// An edit drops the fields of a record that have no effect.
	old := record(t, `{ "template": "knc", "size": 6, "drain_timeout": "1m", "leaving": ["`+string(idA)+`"], "revision": 2 }`)
	got := mustJSON(change(t, s, web, old, config.Change{Size: ptr(7)}).Entry)
	if want := `{"size":7,"leaving":["` + string(idA) + `"],"revision":3}`; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
	bad := config.UnreadableGroup(config.Header{}, errors.New("damaged"))
	if g := group(t, s, web, change(t, s, web, bad, config.Change{Size: ptr(2)})); g.Disabled != "" || g.Size != 2 {
		t.Errorf("a good change over a bad record gives %+v", g)
	}
}

func TestBadChanges(t *testing.T) {
	s := parse(t, scene)
	all := records(t, `{ "default": { "own": { "template": "knd", "size": 1 }, "bad": { "size": "two" } } }`)
	before := encoded(t, all[own])
	deep := map[string]any{}
	for range 40 {
		deep = map[string]any{"x": deep}
	}
	armOnly := config.Checks{InstanceTypeArch: func(string) (string, bool) { return "arm64", true }}
	for _, c := range []struct {
		key    fleet.GroupKey
		change config.Change
		want   string
	}{
		{web, config.Change{Size: ptr(-1)}, "size: -1 is outside the limits: want 0 to 10000"},
		{web, config.Change{Size: ptr(1_000_000_000)}, "size: 1000000000 is outside the limits: want 0 to 10000"},
		{own, config.Change{Size: ptr(10_001)}, "size: 10001 is outside the limits: want 0 to 10000"},
		{own, config.Change{Template: ptr("nope")}, `template: no such template "nope" (have: knc, knd)`},
		{own, config.Change{Template: ptr("")}, "template: required"},
		{own, config.Change{Template: ptr("knc")}, `subnet_pool: the subnet pool "control" is not for dynamic groups (have: workers)`},
		{own, config.Change{SubnetPool: ptr("wrkers")}, `subnet_pool: no such subnet pool "wrkers" (have: workers)`},
		{own, config.Change{Remove: []fleet.InstanceID{idA}}, "size: required with remove"},
		{own, config.Change{Size: ptr(0), Remove: []fleet.InstanceID{idA, "me"}}, `remove[1]: "me" is not an instance id`},
		{own, config.Change{Vars: map[string]any{"a": nil}}, "vars.a: null can't be rendered"},
		{own, config.Change{Vars: map[string]any{"a": math.NaN()}}, `vars: ["a"]: NaN is not a number that JSON has`},
		{own, config.Change{Vars: map[string]any{"a": []any{struct{}{}}}}, `vars: ["a"]: [0]: a value of Go type struct {}`},
		{own, config.Change{InstanceType: ptr("ev\x1b[31mil\nFORGED")}, `instance_type: "ev\x1b[31mil\nFORGED" is not an instance type: want`},
		{web, config.Change{InstanceType: ptr("t3 micro")}, `instance_type: "t3 micro" is not an instance type`},
		{own, config.Change{Vars: map[string]any{"a\nFORGED": 1}}, `vars: "a\nFORGED" is not a name of vars: want printable characters`},
		{own, config.Change{Vars: map[string]any{"a": []any{map[string]any{"\u202e": 1}}}}, `vars.a[0]: "\u202e" is not a name of vars`},
		{own, config.Change{Vars: deep}, "vars: nested 40 deep: at most 32 are allowed"},
		{fleet.GroupKey{Tenant: "default", Name: "Own"}, config.Change{Template: ptr("knd")}, `group: "Own" is not a valid id`},
		{fleet.GroupKey{Tenant: "dev", Name: "own"}, config.Change{Template: ptr("knd")}, `tenant: tenant "dev" is not declared`},
		{fleet.GroupKey{Tenant: "default", Name: "bad"}, config.Change{Size: ptr(1)}, "template: required"},
	} {
		after, err := s.ChangeGroup(c.key, all[c.key], c.change, config.Checks{})
		var problems config.Problems
		if !errors.As(err, &problems) || !strings.HasPrefix(problems[0].String(), c.want) {
			t.Errorf("%s %+v: %v, want %s", c.key, c.change, err, c.want)
		}
		if after.Stored() || encoded(t, all[own]) != before {
			t.Errorf("%s %+v: a refused change has an effect", c.key, c.change)
		}
	}
	_, err := s.ChangeGroup(own, all[own], config.Change{InstanceType: ptr("t4g.small")}, armOnly)
	if err == nil || !strings.Contains(err.Error(), `instance_type: instance type "t4g.small" is arm64, but the template's arch is amd64`) {
		t.Errorf("an instance type of another arch gives %v", err)
	}
}

// TestReset: a static group's overrides are dropped; a missing dynamic group is restored to its
// last known state.
func TestReset(t *testing.T) {
	s := parse(t, scene)
	is := record(t, `{ "size": 7, "revision": 3 }`)
	reset, err := s.ResetGroup(web, is, config.By{}, noon)
	if err != nil || reset.Exists() || !reset.Stored() || reset.Revision != 4 || group(t, s, web, reset).Size != 2 ||
		group(t, s, web, reset).Revision != 4 {
		t.Errorf("a static group became %+v, %v", reset, err)
	}
	if again, err := s.ResetGroup(web, reset, config.By{}, noon.Add(time.Hour)); err != nil || !reflect.DeepEqual(again, reset) {
		t.Errorf("reset again: %+v, %v", again, err)
	}
	missing := record(t, `{ "template": "knd", "size": 3, "missing": true, "revision": 4 }`)
	back, err := s.ResetGroup(own, missing, config.By{}, noon)
	if err != nil || mustJSON(back.Entry) != `{"template":"knd","size":3,"revision":5}` || !missing.Missing {
		t.Errorf("a missing group became %+v, %v", back, err)
	}
	if again, err := s.ResetGroup(own, back, config.By{}, noon); err != nil || !reflect.DeepEqual(again, back) {
		t.Errorf("reset again: %+v, %v", again, err)
	}
	for text, want := range map[string]error{
		`{ "size": 3, "missing": true, "undefined": true }`: config.ErrUnknownGroup,
		`{ "template": "knd", "removed": true }`:            config.ErrRemoved,
		`{ "deleted_at": "2026-03-01T12:00:00Z" }`:          config.ErrNoGroup,
	} {
		if _, err := s.ResetGroup(own, record(t, text), config.By{}, noon); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// TestCreateLeavesWhatIsThere: a create may only repeat its own result.
func TestCreateLeavesWhatIsThere(t *testing.T) {
	s := parse(t, scene)
	create := config.Change{Template: ptr("knd"), Size: ptr(2), Vars: map[string]any{"a": 1, "b": map[string]any{"c": 2.5}}, Create: true}
	r := change(t, s, own, config.GroupRecord{}, create) // repeats it, also after storing it
	for name, change := range map[string]func(*config.Change){
		"another size": func(c *config.Change) { c.Size = ptr(0) },
		"no size":      func(c *config.Change) { c.Size = nil },
		"other vars":   func(c *config.Change) { c.Vars = map[string]any{"a": 2} },
		"a surge":      func(c *config.Change) { c.MaxSurge = &fleet.Surge{Count: 3} },
		"a pause":      func(c *config.Change) { c.RolloutPaused = ptr(true) },
	} {
		other := create
		change(&other)
		if _, err := s.ChangeGroup(own, r, other, config.Checks{}); !errors.Is(err, config.ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := r.Remove()
	if _, err := s.ChangeGroup(own, gone, create, config.Checks{}); err != nil {
		t.Errorf("one that is being deleted is not made anew: %v", err)
	}
	for key, group := range s.Groups["default"] {
		again := config.Change{Template: &group.Template, Create: true}
		_, err := s.ChangeGroup(fleet.GroupKey{Tenant: "default", Name: key}, r, again, config.Checks{})
		if !errors.Is(err, config.ErrExists) {
			t.Errorf("static group %s: %v", key, err)
		}
	}
	var problems config.Problems
	if _, err := s.ChangeGroup(own, config.GroupRecord{}, config.Change{Create: true}, config.Checks{}); !errors.As(err, &problems) ||
		problems[0].Path != "template" {
		t.Errorf("without a template: %v", err)
	}
}

// TestCreateOfWhatIsUndefined: it keeps the number of instances, and can be repeated.
func TestCreateOfWhatIsUndefined(t *testing.T) {
	s := parse(t, scene)
	is := record(t, `{ "size": 9, "missing": true, "undefined": true, "revision": 8 }`)
	r := change(t, s, own, is, config.Change{Template: ptr("knd"), Create: true})
	if want := `{"template":"knd","size":9,"size_kept":true,"revision":9}`; mustJSON(r.Entry) != want {
		t.Errorf("made %s, want %s", mustJSON(r.Entry), want)
	}
	r = change(t, s, own, r, config.Change{Size: ptr(2)})
	if want := `{"template":"knd","size":2,"revision":10}`; mustJSON(r.Entry) != want {
		t.Errorf("scaled to %s, want %s", mustJSON(r.Entry), want)
	}
}
