package config_test

import (
	"os"
	"reflect"
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
