package config_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

func FuzzParse(f *testing.F) {
	for _, name := range []string{"config.jsonc", "dev/dev-1.jsonc"} {
		f.Add(readExample(f, name))
	}
	mistakes, err := os.ReadFile("testdata/mistakes.jsonc")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(mistakes)
	f.Add([]byte(minimal))
	f.Add([]byte(with(`"expiry": 1, "groups": { "default": { "a": { "template": "knd", "drain_timeout": "1d12h" } } }`)))
	f.Add([]byte(with(`"defaults": { "vars": { "a.b": [1e3, 0.5, null] }, "args": { "x": "{{ range .Vars }}{{ $.Vars.y }}{{ end }}" } }`)))
	f.Add([]byte(`{"cluster": {"id": "\ud800"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		accepted, acceptedErr := config.ParseAccepted(data)
		shard, err := config.Parse(data)
		if err != nil {
			_ = err.Error()
			return
		}
		if acceptedErr != nil || !reflect.DeepEqual(accepted, shard) {
			t.Fatalf("accepted, but not as it was before: %v\n%+v\n%+v", acceptedErr, shard, accepted)
		}
		checkRoundTrip(t, shard)
		if problems := shard.Validate(config.Checks{}); problems != nil {
			t.Fatalf("accepted, but Validate reports %v", problems)
		}
		groups, problems := shard.Resolve(config.Dynamic{})
		if problems != nil {
			t.Fatalf("accepted, but Resolve reports %v", problems)
		}
		for _, g := range groups {
			// Rendering may fail, since vars are only known here, but it ends.
			_, _ = config.RenderArgs(g.Args, config.Facts{Vars: g.Vars})
			_, _ = config.RenderUserdata(g.Userdata, config.Facts{Vars: g.Vars})
		}
	})
}

func FuzzParseDynamic(f *testing.F) {
	for _, text := range []string{
		`{}`,
		`{"epoch": 3, "rev": 12, "writer": "a", "groups": {"default": {"web": {"size": 5}}}}`,
		`{"groups": {"default": {"own": {"template": "knd", "size": 2, "vars": {"a": [1, {"b": null}]}, ` +
			`"leaving": ["knd01hqz3yfzzfzz8zzzzzzzzzzzz"]}}}}`,
		`{"groups": {"default": {"web": {"size": "two", "x": 1e999}, "gone": {"removed": true}}, "Bad": {"x": {}}}}`,
		`{"groups": {"default": {"web": null}, "empty": {}}} // comment`,
		newerGroups,
	} {
		f.Add([]byte(text))
	}
	shard := parse(f, with(`"groups": { "default": { "web": { "template": "knd", "size": 2 } } }`))
	web := fleet.GroupKey{Tenant: "default", Name: "web"}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := config.ParseDynamic(data)
		if err != nil {
			_ = err.Error()
			return
		}
		first, err := d.Encode()
		if err != nil {
			return // grew over the limit by indentation
		}
		again, err := config.ParseDynamic(first)
		if err != nil {
			t.Fatalf("what Encode wrote is not read: %v\n%s", err, first)
		}
		second, err := again.Encode()
		if err != nil || string(first) != string(second) {
			t.Fatalf("changed by a round trip (%v):\n%s\n%s", err, first, second)
		}
		groups, _ := shard.Resolve(d)
		if g, ok := groups[web]; !ok || g.Size > config.MaxGroupSize || g.Size < 0 {
			t.Fatalf("group web is %+v, %v", g, ok)
		}
	})
}

// FuzzParseEntries: what is read can be written and read again as the same, an edit of
// one group leaves all others as they are, and what is no tenant's object but says that
// groups have moved is never read as groups.
func FuzzParseEntries(f *testing.F) {
	for _, text := range []string{
		`{}`,
		`{"epoch": 3, "rev": 12, "writer": "a", "groups": {"web": {"size": 5}}}`,
		`{"groups": {"own": {"template": "knd", "size": 2, "vars": {"a": [1, {"b": null}]}, "leaving": ["knd01hqz3yfzzfzz8zzzzzzzzzzzz"]}}}`,
		`{"groups": {"web": {"size": "two", "x": 1e999}, "gone": {"removed": true}, "Bad": null}, "later": {"<": 1}} // comment`,
		`{"epoch": 1, "rev": 2, "writer": "a", "groups": {"web": {"revision": 9007199254740993}}}`,
		`{"epoch": 1, "rev": 2, "writer": "a", "moved": true, "groups": "moved to x"}`,
	} {
		f.Add([]byte(text))
	}
	web := fleet.GroupKey{Tenant: "default", Name: "web"}
	f.Fuzz(func(t *testing.T, data []byte) {
		tenant, err := config.ParseEntries(data)
		if _, moved := config.ParseMoved(data); moved {
			if _, dynamicErr := config.ParseDynamic(data); dynamicErr == nil && strings.Contains(string(data), "groups") {
				t.Fatalf("moved, and read as groups: %s", data)
			}
		}
		if err != nil {
			_ = err.Error()
			return
		}
		draft := tenant.Draft()
		before := draft.Only("default", "web")
		size := 4
		after, err := before.Upsert(web, config.Change{Size: &size})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := draft.Take("default", before, after); err != nil {
			return // over the limit
		}
		h := config.Header{Epoch: 1, Rev: draft.Rev(), Writer: "w"}
		text, err := draft.Encode(h)
		if err != nil {
			return
		}
		again, err := config.ParseEntries(text)
		if err != nil {
			t.Fatalf("what Encode wrote is not read: %v\n%s", err, text)
		}
		if second, err := again.Encode(h); err != nil || string(second) != string(text) {
			t.Fatalf("changed by a round trip (%v):\n%s\n%s", err, text, second)
		}
		if names := again.Differing(tenant); len(names) > 1 || len(names) == 1 && names[0] != "web" {
			t.Fatalf("an edit of web changed %q", names)
		}
	})
}
