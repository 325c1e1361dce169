package config_test

import (
	"maps"
	"os"
	"reflect"
	"slices"
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
	f.Add([]byte(with(`"groups": { "default": { "a": { "template": "knd", "on_demand": { "namespaces": ["*", "ci"], ` +
		`"namespace_labels": { "example.com/team": "" }, "instance_types": ["large"], "max": 3, "max_per_namespace": 2 } } } }`)))
	f.Add([]byte(with(`"defaults": { "vars": { "a.b": [1e3, 0.5, null] }, "args": { "x": "{{ range .Vars }}{{ $.Vars.y }}{{ end }}" } }`)))
	f.Add([]byte(`{"cluster": {"id": "\ud800"}}`))
	f.Add([]byte(sharedWith("TEMPLATE", `"tenants": ["blue"],`, "THEFILES", `"a.conf": { "kind": "secret", "source": "db-x" }`,
		"SECRETS", `"db-*": { "tenants": ["blue", "red"] }`, "GROUPS", `"blue": { "web": { "template": "theirs" } }`)))
	f.Add([]byte(sharedWith("TEMPLATE", `"tenants": ["*"],`, "THEFILES", `"a.conf": { "kind": "storage", "source": "files/a/b" }`,
		"FILES", `"files/a/": { "tenants": ["*"] }`, "ARG", "{{ .Image.debian }}", "IMAGE", `"tenants": ["*"],`)))
	f.Add([]byte(sharedWith("DEFAULTS", `"vars": { "a": 1 }`, "GROUPS", `"blue": { "web": { "template": "theirs", "size": 2000 } }`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		accepted, acceptedErr := config.ParseAccepted(data)
		if acceptedErr == nil {
			checkHeld(t, accepted)
		}
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
		groups, problems := shard.Resolve(nil)
		if problems != nil {
			t.Fatalf("accepted, but Resolve reports %v", problems)
		}
		checkReach(t, shard, groups)
		for _, g := range groups {
			// Rendering may fail, since vars are only known here, but it terminates.
			values := config.NewTemplates().For(config.Facts{Vars: g.Vars})
			_, _ = values.Args(g.Args)
			_, _ = values.Userdata(g.Userdata)
		}
	})
}

// checkHeld checks that an accepted text's groups that use what is not for their tenant are
// held.
func checkHeld(t *testing.T, shard *config.Shard) {
	t.Helper()
	groups, _ := shard.Resolve(nil)
	for key, g := range groups {
		if g.Disabled != "" {
			continue
		}
		for what, by := range map[string]config.Tenants{
			"template " + g.Template: shard.Templates[g.Template].Tenants, "pool " + g.SubnetPool: shard.Server.SubnetPools[g.SubnetPool].Tenants,
		} {
			if !by.Allow(key.Tenant) {
				t.Fatalf("group %s has %s", key, what)
			}
		}
	}
}

// checkReach checks that no group, static or possible for its tenant, uses what is not for its
// tenant.
func checkReach(t *testing.T, shard *config.Shard, groups map[fleet.GroupKey]fleet.Group) {
	t.Helper()
	tenants := append(slices.Collect(maps.Keys(shard.Tenants)), "default")
	for template := range shard.Templates {
		for _, tenant := range tenants[:min(len(tenants), 20)] {
			key := fleet.GroupKey{Tenant: tenant, Name: "made-by-fuzz"}
			size := 0
			c := config.Change{Template: &template, Size: &size, Create: true}
			r, err := shard.ChangeGroup(key, config.GroupRecord{}, c, config.Checks{})
			if g, ok, _ := shard.ResolveGroup(key, r); err == nil && ok && g.Disabled == "" {
				groups[key] = g
			}
		}
	}
	for key, g := range groups {
		if !shard.Templates[g.Template].Tenants.Allow(key.Tenant) || !shard.Server.SubnetPools[g.SubnetPool].Tenants.Allow(key.Tenant) {
			t.Fatalf("group %s has template %q and pool %q", key, g.Template, g.SubnetPool)
		}
		for name, file := range g.Files {
			if err := shard.CheckFile(key.Tenant, file); err != nil {
				t.Fatalf("group %s has file %q: %v", key, name, err)
			}
		}
		for _, image := range config.NewTemplates().ImagesOf(shard, g) {
			if !shard.Images[image].Tenants.Allow(key.Tenant) {
				t.Fatalf("group %s has image %q", key, image)
			}
		}
	}
}

// FuzzDecodeGroup: a decoded record can be encoded and decoded again unchanged, and any record
// of a static group either takes effect or disables the group.
func FuzzDecodeGroup(f *testing.F) {
	for _, text := range []string{
		`{}`, newerWeb, newerOwn,
		`{"epoch": 3, "rev": 12, "writer": "a", "size": 5}`,
		`{"template": "knd", "size": 2, "vars": {"a": [1, {"b": null}]}, "leaving": ["knd01hqz3yfzzfzz8zzzzzzzzzzzz"], "revision": 9}`,
		`{"template": "knd", "revision": 9007199254740993}`,
		`{"size": "two", "x": 1e999}`, `{"removed": true, "later": {"<": 1}} // comment`, `null`,
		`{"epoch": 1, "rev": 2, "writer": "a", "deleted_at": "2026-03-01T12:00:00+01:00", "revision": 3, "size": 2}`,
		`{"template": "knd", "vars": {}, "args": {}, "load_balancers": [], "rotation": {"max_surge": "5%"}, "drain_timeout": "1d12h"}`,
		`{"size": 3, "missing": true, "undefined": true}`, `{"size": 3, "size_kept": true, "rotation": {}}`,
		`{"template": "knd", "on_demand": {"namespaces": ["ci"], "namespace_labels": {"a": "b"}, "instance_types": [], "max": 0}}`,
		`{"template": "gone", "kept": {"kind": "knd", "arch": "amd64", "vars": {"a": 1}, ` +
			`"files": {"a.crt": {"kind": "certificate", "template": "x", "key": {"source": "agent", "name": "k"}}}}}`,
	} {
		f.Add([]byte(text))
	}
	shard := parse(f, with(`"groups": { "default": { "web": { "template": "knd", "size": 2 } } }`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := config.DecodeGroup(data)
		if err != nil {
			_ = err.Error()
			return
		}
		first, err := r.Encode()
		if err != nil {
			return // escapes exceeded the limit
		}
		again, err := config.DecodeGroup(first)
		if err != nil {
			t.Fatalf("what Encode wrote is not read: %v\n%s", err, first)
		}
		if second, err := again.Encode(); err != nil || string(first) != string(second) || again.Header != r.Header || !again.Same(r) {
			t.Fatalf("changed by a round trip (%v):\n%s\n%s", err, first, second)
		}
		g, ok, _ := shard.ResolveGroup(web, r)
		if !ok || g.Size > config.MaxGroupSize || g.Size < 0 {
			t.Fatalf("group web is %+v, %v", g, ok)
		}
		size := 4
		if next, err := shard.ChangeGroup(web, r, config.Change{Size: &size}, config.Checks{}); err == nil && !next.Same(stored(t, next)) {
			t.Fatalf("changed to %s, and read again %s", encoded(t, next), encoded(t, stored(t, next)))
		}
	})
}
