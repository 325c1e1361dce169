package config_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

const (
	idA = fleet.InstanceID("knd01hf7yat00e00r0000000000g0")
	idB = fleet.InstanceID("knd01hf7yat00e00r0000000000g2")
	idC = fleet.InstanceID("knd01hf7yat00e00r0000000000g4")
)

func ptr[T any](v T) *T { return &v }

// upsert applies a change that has to be accepted, and checks that it left its
// input alone, that doing it again changes nothing, and that the result can be
// stored.
func upsert(t testing.TB, s *config.Shard, d config.Dynamic, key fleet.GroupKey, c config.Change) config.Dynamic {
	t.Helper()
	before := encoded(t, d)
	next, err := s.Upsert(d, key, c, config.Checks{})
	if err != nil {
		t.Fatalf("Upsert %s: %v", key, err)
	}
	if encoded(t, d) != before {
		t.Fatal("the input changed")
	}
	again, err := s.Upsert(next, key, c, config.Checks{})
	if err != nil || !reflect.DeepEqual(again, next) {
		t.Fatalf("the same change again: %v\n%s\n%s", err, encoded(t, next), encoded(t, again))
	}
	stored, err := config.ParseDynamic([]byte(encoded(t, next)))
	if err != nil || !reflect.DeepEqual(stored.Groups, next.Groups) {
		t.Fatalf("stored and read again: %v\n%#v\n%#v", err, stored, next)
	}
	return next
}

func encoded(t testing.TB, d config.Dynamic) string {
	t.Helper()
	text, err := d.Encode()
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	return string(text)
}

func group(t testing.TB, s *config.Shard, d config.Dynamic, key fleet.GroupKey) fleet.Group {
	t.Helper()
	groups, _ := s.Resolve(d)
	g, ok := groups[key]
	if !ok {
		t.Fatalf("there is no group %s", key)
	}
	return g
}

func TestOnlySizeChangesSize(t *testing.T) {
	s := parse(t, scene)
	for _, key := range []fleet.GroupKey{web, bare, prod} {
		before := group(t, s, config.Dynamic{}, key)
		after := group(t, s, upsert(t, s, config.Dynamic{}, key, config.Change{Size: ptr(5)}), key)
		before.Size, before.Revision = 5, 1
		if !reflect.DeepEqual(after, before) {
			t.Errorf("%s is %+v, want %+v", key, after, before)
		}
	}
}

func TestLifeOfADynamicGroup(t *testing.T) {
	s := parse(t, scene)
	d := upsert(t, s, config.Dynamic{Epoch: 4, Rev: 2, Writer: "w"}, own, config.Change{
		Template: ptr("knd"), Size: ptr(2), Vars: map[string]any{"a": 1.0, "b": map[string]any{"c": 2.5}},
	})
	if g := group(t, s, d, own); g.Size != 2 || g.Vars["a"] != int64(1) || g.Disabled != "" {
		t.Fatalf("made %+v", g)
	}
	if d.Epoch != 4 || d.Rev != 2 || d.Writer != "w" {
		t.Errorf("the header became %+v", d)
	}
	d = upsert(t, s, d, own, config.Change{Size: ptr(1), Remove: []fleet.InstanceID{idB, idA}})
	d = upsert(t, s, d, own, config.Change{Size: ptr(0), Remove: []fleet.InstanceID{idA, idC}})
	if g := group(t, s, d, own); !reflect.DeepEqual(g.Leaving, []fleet.InstanceID{idA, idB, idC}) || g.Vars["a"] != int64(1) {
		t.Fatalf("scaled to %+v", g)
	}
	settled := d.Settle(own, []fleet.InstanceID{idA, idC, idA})
	if g := group(t, s, settled, own); !reflect.DeepEqual(g.Leaving, []fleet.InstanceID{idB}) {
		t.Errorf("settled to %+v", g)
	}
	if g := group(t, s, d, own); len(g.Leaving) != 3 {
		t.Error("Settle changed its input")
	}
	d = upsert(t, s, settled.Settle(own, []fleet.InstanceID{idB}), own,
		config.Change{Vars: map[string]any{}, InstanceType: ptr("huge"), SubnetPool: ptr("workers")})
	if g := group(t, s, d, own); g.Vars["a"] != nil || g.InstanceType != "huge" || g.Leaving != nil {
		t.Errorf("changed to %+v", g)
	}
	d = upsert(t, s, d, own, config.Change{InstanceType: ptr("")})
	if g := group(t, s, d, own); g.InstanceType != "small" {
		t.Errorf("an empty instance type gives %+v", g)
	}

	removed, err := s.Remove(d, own)
	if err != nil {
		t.Fatal(err)
	}
	if g := group(t, s, removed, own); !g.Removed || g.Size != 0 || g.Leaving != nil || g.Kind != "knd" {
		t.Errorf("removed is %+v", g)
	}
	if group(t, s, d, own).Removed {
		t.Error("Remove changed its input")
	}
	if again, err := s.Remove(removed, own); err != nil || !reflect.DeepEqual(again, removed) {
		t.Errorf("removing again: %v", err)
	}
	if _, err := s.Upsert(removed, own, config.Change{Size: ptr(3)}, config.Checks{}); !errors.Is(err, config.ErrRemoved) {
		t.Errorf("scaling a removed group gives %v", err)
	}
	anew := upsert(t, s, removed, own, config.Change{Template: ptr("knd")})
	if g := group(t, s, anew, own); g.Removed || g.Size != 4 {
		t.Errorf("made anew: %+v", g)
	}
	if was, of, now := group(t, s, d, own), group(t, s, removed, own), group(t, s, anew, own); of.Revision <= was.Revision ||
		now.Revision <= of.Revision {
		t.Errorf("revisions %d, removed %d, anew %d", was.Revision, of.Revision, now.Revision)
	}
	forgotten := removed.Forget(own)
	if _, ok := forgotten.Entry(own); ok || len(forgotten.Groups) != 0 {
		t.Errorf("forgotten is %+v", forgotten)
	}
	if _, ok := removed.Entry(own); !ok {
		t.Error("Forget changed its input")
	}
}

func TestEditsOfWhatIsNotThere(t *testing.T) {
	s, d := parse(t, scene), config.Dynamic{}
	if _, err := s.Upsert(d, own, config.Change{Size: ptr(1)}, config.Checks{}); !errors.Is(err, config.ErrNoGroup) {
		t.Errorf("scaling gives %v", err)
	}
	if _, err := s.Remove(d, own); !errors.Is(err, config.ErrNoGroup) {
		t.Errorf("removing gives %v", err)
	}
	for name, after := range map[string]config.Dynamic{
		"Remove": d.Remove(own), "Forget": d.Forget(own), "Settle": d.Settle(own, []fleet.InstanceID{idA}),
	} {
		if len(after.Groups) != 0 {
			t.Errorf("%s made %+v", name, after)
		}
	}
}

func TestRestrictedEditing(t *testing.T) {
	s := parse(t, scene)
	for field, c := range map[string]config.Change{
		"template":    {Template: ptr("knc"), Size: ptr(1)},
		"subnet_pool": {SubnetPool: ptr("control"), Size: ptr(1)},
	} {
		_, err := s.Upsert(config.Dynamic{}, web, c, config.Checks{})
		if !errors.Is(err, config.ErrRestricted) || !strings.Contains(err.Error(), field+": set by static config") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := s.Remove(config.Dynamic{}, web); !errors.Is(err, config.ErrRestricted) {
		t.Errorf("removing gives %v", err)
	}
	// Saying what static config says is no change.
	d := upsert(t, s, config.Dynamic{}, web, config.Change{
		Template: ptr("knd"), SubnetPool: ptr("workers"), Size: ptr(3), InstanceType: ptr("huge"), Vars: map[string]any{"x": true},
	})
	if got, want := mustJSON(d.Groups), `{"default":{"web":{"size":3,"instance_type":"huge","vars":{"x":true},"revision":1}}}`; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
	upsert(t, s, config.Dynamic{}, web, config.Change{SubnetPool: ptr("")})
	// An edit clears away what an entry has no say in.
	old := dynamic(t, `{ "default": { "web": { "template": "knc", "size": 6, "drain_timeout": "1m", "leaving": ["`+string(idA)+`"] } } }`)
	got := mustJSON(upsert(t, s, old, web, config.Change{Size: ptr(7)}).Groups["default"]["web"])
	if want := `{"size":7,"leaving":["` + string(idA) + `"],"revision":3}`; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
	bad := dynamic(t, `{ "default": { "web": { "size": "two" } } }`)
	if g := group(t, s, upsert(t, s, bad, web, config.Change{Size: ptr(2)}), web); g.Disabled != "" || g.Size != 2 {
		t.Errorf("a good change over a bad entry gives %+v", g)
	}
}

func TestBadChanges(t *testing.T) {
	s := parse(t, scene)
	d := dynamic(t, `{ "default": { "own": { "template": "knd", "size": 1 }, "bad": { "size": "two" } } }`)
	before := encoded(t, d)
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
		{own, config.Change{Remove: []fleet.InstanceID{idA}}, "size: required beside remove"},
		{own, config.Change{Size: ptr(0), Remove: []fleet.InstanceID{idA, "me"}}, `remove[1]: "me" is not an instance id`},
		{own, config.Change{Vars: map[string]any{"a": nil}}, "vars.a: null can't be rendered"},
		{own, config.Change{Vars: map[string]any{"a": math.NaN()}}, `vars: ["a"]: NaN is not a number that JSON has`},
		{own, config.Change{Vars: map[string]any{"a": []any{struct{}{}}}}, `vars: ["a"]: [0]: a value of Go type struct {}`},
		{own, config.Change{Vars: deep}, "vars: nested 40 deep: at most 32 are allowed"},
		{fleet.GroupKey{Tenant: "default", Name: "Own"}, config.Change{Template: ptr("knd")}, `group: "Own" is not a valid id`},
		{fleet.GroupKey{Tenant: "dev", Name: "own"}, config.Change{Template: ptr("knd")}, `tenant: no such tenant "dev" (have: default, prod)`},
		{fleet.GroupKey{Tenant: "default", Name: "bad"}, config.Change{Size: ptr(1)}, "template: required"},
	} {
		after, err := s.Upsert(d, c.key, c.change, config.Checks{})
		var problems config.Problems
		if !errors.As(err, &problems) || !strings.HasPrefix(problems[0].String(), c.want) {
			t.Errorf("%s %+v: %v, want %s", c.key, c.change, err, c.want)
		}
		if len(after.Groups) != 0 || encoded(t, d) != before {
			t.Errorf("%s %+v: a refused change has an effect", c.key, c.change)
		}
	}
	_, err := s.Upsert(d, own, config.Change{InstanceType: ptr("t4g.small")}, armOnly)
	if err == nil || !strings.Contains(err.Error(), `instance_type: instance type "t4g.small" is arm64, but the template's arch is amd64`) {
		t.Errorf("an instance type of another arch gives %v", err)
	}
}

func TestAdopt(t *testing.T) {
	last := parse(t, scene)
	next := parse(t, strings.Replace(scene, `"web": { "template": "knd", "size": 2,`, `"new": { "template": "knd", "size": 2,`, 1))
	d := upsert(t, last, config.Dynamic{}, web, config.Change{Size: ptr(6), Vars: map[string]any{"level": "entry"}})
	d = upsert(t, last, d, bare, config.Change{Size: ptr(1)})
	before, kept := group(t, last, d, web), encoded(t, d)
	adopted := d.Adopt(last, next)
	after := group(t, next, adopted, web)
	before.Static, before.StaticSize = false, 0
	if !reflect.DeepEqual(after, before) {
		t.Errorf("adopted as\n%+v\nwant\n%+v", after, before)
	}
	if encoded(t, d) != kept {
		t.Error("Adopt changed its input")
	}
	if e, _ := adopted.Entry(bare); e.Template != nil {
		t.Error("a group that is still static was adopted")
	}
	if again := adopted.Adopt(last, next); !reflect.DeepEqual(group(t, next, again, web), after) {
		t.Error("adopting twice differs")
	}
	upsert(t, next, adopted, web, config.Change{Template: ptr("knd"), SubnetPool: ptr("workers"), Size: ptr(1)})
	if groups, _ := next.Resolve(config.Dynamic{}.Adopt(last, next)); groups[web].Key == web {
		t.Error("a group without an entry was adopted")
	}
}

func TestParseDynamicErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                             "line 2, column 1: parsing value: unexpected EOF",
		`[]`:                           "got an array: want an object",
		`{"groups": 1}`:                "groups: got the number 1: want an object",
		`{"groups": {"default": []}}`:  "groups.default: got an array: want an object",
		`{"rev": -1}`:                  "rev: got the number -1: want a whole number, not negative",
		`{"rev": 1.5}`:                 "rev: got the number 1.5: want a whole number, not negative",
		`{"Groups": {}}`:               "Groups: unknown field (have: epoch, groups, rev, writer)",
		`{"groups": {}, "groups": {}}`: "groups: given more than once",
		`{"groups": {"default": {"web": {}, "web": {}}}}`: "groups.default.web: given more than once",
	} {
		_, err := config.ParseDynamic([]byte(text))
		var problems config.Problems
		if !errors.As(err, &problems) || !strings.HasPrefix(problems[0].String(), want) {
			t.Errorf("%s gives %v, want %s", text, err, want)
		}
	}
	d, err := config.ParseDynamic([]byte(`{"rev": 18446744073709551615, "groups": {"default": {}}} // all`))
	if err != nil || d.Rev != math.MaxUint64 || len(d.Groups) != 0 {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestEncodeDynamicHasALimit(t *testing.T) {
	d, err := config.Dynamic{}.Upsert(own, config.Change{Vars: map[string]any{"a": strings.Repeat("x", config.MaxSize)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Encode(); err == nil || !strings.Contains(err.Error(), "can be read again") {
		t.Errorf("Encode gives %v", err)
	}
}

// However edits follow each other, what is stored resolves without a problem,
// and each edit is its own group's affair.
func TestEditsKeepTheShardWhole(t *testing.T) {
	s := parse(t, scene)
	keys := []fleet.GroupKey{web, bare, prod, own, {Tenant: "prod", Name: "own"}}
	rapid.Check(t, func(rt *rapid.T) {
		var d config.Dynamic
		for range rapid.IntRange(1, 12).Draw(rt, "edits") {
			key := rapid.SampledFrom(keys).Draw(rt, "key")
			before, _ := s.Resolve(d)
			input := encoded(t, d)
			next, err := edit(rt, s, d, key)
			if encoded(t, d) != input {
				rt.Fatal("an edit changed its input")
			}
			if err != nil {
				continue
			}
			after, problems := s.Resolve(next)
			if problems != nil {
				rt.Fatalf("stored %s\nproblems %v", encoded(t, next), problems)
			}
			for _, other := range keys {
				if other != key && !reflect.DeepEqual(after[other], before[other]) {
					rt.Fatalf("an edit of %s changed %s", key, other)
				}
			}
			if d, err = config.ParseDynamic([]byte(encoded(t, next))); err != nil ||
				!reflect.DeepEqual(d.Groups, next.Groups) && len(next.Groups) > 0 {
				rt.Fatalf("read again: %v", err)
			}
		}
	})
}

func edit(t *rapid.T, s *config.Shard, d config.Dynamic, key fleet.GroupKey) (config.Dynamic, error) {
	ids := rapid.SliceOfN(rapid.SampledFrom([]fleet.InstanceID{idA, idB, idC}), 0, 3).Draw(t, "ids")
	switch rapid.IntRange(0, 5).Draw(t, "edit") {
	case 0:
		return s.Remove(d, key)
	case 1:
		return d.Settle(key, ids), nil
	case 2:
		return d.Forget(key), nil
	}
	c := config.Change{Remove: ids}
	if rapid.Bool().Draw(t, "has size") {
		c.Size = ptr(rapid.IntRange(-1, 10_001).Draw(t, "size"))
	}
	if rapid.Bool().Draw(t, "has template") {
		c.Template = ptr(rapid.SampledFrom([]string{"knd", "knc", "nope", ""}).Draw(t, "template"))
	}
	if rapid.Bool().Draw(t, "has pool") {
		c.SubnetPool = ptr(rapid.SampledFrom([]string{"workers", "control", "nope", ""}).Draw(t, "pool"))
	}
	if rapid.Bool().Draw(t, "has type") {
		c.InstanceType = ptr(rapid.SampledFrom([]string{"small", ""}).Draw(t, "type"))
	}
	if rapid.Bool().Draw(t, "has vars") {
		c.Vars = object().Draw(t, "vars")
	}
	return s.Upsert(d, key, c, config.Checks{})
}

// TestCreateLeavesWhatIsThere: a create makes a group, and only what it made itself may it
// make again.
func TestCreateLeavesWhatIsThere(t *testing.T) {
	s := parse(t, scene)
	create := config.Change{Template: ptr("knd"), Size: ptr(2), Vars: map[string]any{"a": 1, "b": map[string]any{"c": 2.5}}, Create: true}
	d := upsert(t, s, config.Dynamic{Rev: 2}, own, create) // which repeats it
	stored, err := config.ParseDynamic([]byte(encoded(t, d)))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Upsert(stored, own, create, config.Checks{}); err != nil || !reflect.DeepEqual(again.Groups, stored.Groups) {
		t.Errorf("repeated on what was stored: %v, %v", again, err)
	}
	for name, change := range map[string]func(*config.Change){
		"another size": func(c *config.Change) { c.Size = ptr(0) },
		"no size":      func(c *config.Change) { c.Size = nil },
		"other vars":   func(c *config.Change) { c.Vars = map[string]any{"a": 2} },
		"a surge":      func(c *config.Change) { c.MaxSurge = &fleet.Surge{Count: 3} },
	} {
		other := create
		change(&other)
		if _, err := s.Upsert(d, own, other, config.Checks{}); !errors.Is(err, config.ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := d.Remove(own)
	if _, err := s.Upsert(gone, own, create, config.Checks{}); err != nil {
		t.Errorf("one that is being deleted is not made anew: %v", err)
	}
	for key, group := range s.Groups["default"] {
		again := config.Change{Template: &group.Template, Create: true}
		if _, err := s.Upsert(d, fleet.GroupKey{Tenant: "default", Name: key}, again, config.Checks{}); !errors.Is(err, config.ErrExists) {
			t.Errorf("static group %s: %v", key, err)
		}
	}
	var problems config.Problems
	if _, err := s.Upsert(config.Dynamic{}, own, config.Change{Create: true}, config.Checks{}); !errors.As(err, &problems) ||
		problems[0].Path != "template" {
		t.Errorf("without a template: %v", err)
	}
}
