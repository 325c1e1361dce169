package config_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tailscale/hujson"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// scene has static groups of two tenants and a pool that dynamic groups may not
// use.
const scene = `{
  "cluster": { "id": "c", "secrets": { "encryption_key": { "provider": "env", "source": "KEY" } } },
  "server": {
    "provider": { "kind": "fake" }, "default_drain_timeout": "7m",
    "subnet_pools": { "workers": ["a", "b"], "control": { "subnets": ["c"], "tenants": ["default", "prod"] } },
    "dynamic_subnet_pools": ["workers"],
  },
  "tenants": { "prod": {} },
  "load_balancers": { "www": { "provider": "aws", "target_group_arns": ["arn:1"] } },
  "defaults": { "tenants": ["*"], "args": { "d": { "from": "defaults", "d": 1 } }, "vars": { "d": 1, "level": "defaults" },
                "userdata": { "content": "default" } },
  "templates": {
    "knd": { "kind": "knd", "arch": "amd64", "size": 4, "instance_type": "small", "subnet_pool": "workers",
             "args": { "d": { "from": "template" }, "t": true }, "vars": { "t": 1, "level": "template" },
             "files": { "a.json": { "kind": "json", "content": { "x": [1] } } } },
    "knc": { "tenants": ["*"], "kind": "knc", "arch": "arm64", "subnet_pool": "control",
             "userdata": { "content": "own", "encoding": "gzip" } },
  },
  "groups": {
    "default": {
      "web": { "template": "knd", "size": 2, "instance_type": "large", "args": { "g": 1, "d": { "from": "group" } },
               "vars": { "level": "group" }, "load_balancers": ["www"], "drain_timeout": "0s" },
      "bare": { "template": "knd" },
    },
    "prod": { "web": { "template": "knc", "size": 0 } },
  },
}`

var (
	web  = fleet.GroupKey{Tenant: "default", Name: "web"}
	bare = fleet.GroupKey{Tenant: "default", Name: "bare"}
	own  = fleet.GroupKey{Tenant: "default", Name: "own"}
	prod = fleet.GroupKey{Tenant: "prod", Name: "web"}
)

// record returns the record of a text.
func record(t testing.TB, text string) config.GroupRecord {
	t.Helper()
	r, err := config.DecodeGroup([]byte(text))
	if err != nil {
		t.Fatalf("DecodeGroup: %v", err)
	}
	return r
}

// records returns the records of groups by tenant and name, with unreadable ones as the leader
// has them.
func records(t testing.TB, text string) config.GroupRecords {
	t.Helper()
	plain, err := hujson.Standardize([]byte(text))
	var of map[string]map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(plain, &of)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := config.GroupRecords{}
	for tenant, groups := range of {
		for name, group := range groups {
			r, err := config.DecodeGroup(group)
			if err != nil {
				r = config.UnreadableGroup(config.Header{}, err)
			}
			all[fleet.GroupKey{Tenant: tenant, Name: name}] = r
		}
	}
	return all
}

func TestResolveStatic(t *testing.T) {
	groups, problems := parse(t, scene).Resolve(nil)
	if problems != nil || len(groups) != 3 {
		t.Fatalf("%d groups, problems %v", len(groups), problems)
	}
	got := groups[web]
	got.Hashes = fleet.Hashes{}
	want := fleet.Group{
		Key: web, Template: "knd", Kind: "knd", Arch: "amd64", Size: 2, InstanceType: "large", SubnetPool: "workers", Subnets: []string{"a", "b"},
		Args:          map[string]any{"d": map[string]any{"from": "group", "d": int64(1)}, "t": true, "g": int64(1)},
		Vars:          map[string]any{"d": int64(1), "t": int64(1), "level": "group"},
		Userdata:      fleet.Userdata{Source: "inline", Encoding: "plain", Content: "default"},
		Files:         map[string]fleet.File{"a.json": {Kind: "json", Content: map[string]any{"x": []any{int64(1)}}}},
		LoadBalancers: []string{"www"}, DrainTimeout: 0, Static: true, StaticSize: 2,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("web is\n%+v\nwant\n%+v", got, want)
	}
	if g := groups[bare]; g.Size != 4 || g.InstanceType != "small" || g.DrainTimeout != 7*time.Minute || g.Args["t"] != true {
		t.Errorf("bare is %+v: want what the template says", g)
	}
	if g := groups[prod]; g.Size != 0 || g.Userdata != (fleet.Userdata{Source: "inline", Encoding: "gzip", Content: "own"}) ||
		g.SubnetPool != "control" {
		t.Errorf("prod is %+v", g)
	}
}

// TestFilesAreRequired unless a template says otherwise.
func TestFilesAreRequired(t *testing.T) {
	for field, want := range map[string]bool{``: true, `"require_files": true, `: true, `"require_files": false, `: false} {
		groups, problems := parse(t, strings.Replace(scene, `"files": {`, field+`"files": {`, 1)).Resolve(nil)
		if g := groups[web]; problems != nil || len(g.Files) != 1 || g.AwaitsFiles() != want {
			t.Errorf("%q: files %v required: %v; %v", field, g.Files, g.AwaitsFiles(), problems)
		}
	}
}

func TestGroupsShareNoMemory(t *testing.T) {
	shard := parse(t, scene)
	is := records(t, `{ "default": { "own": { "template": "knd", "vars": { "x": { "y": [1] } }, "args": { "x": { "y": [1] } } } } }`)
	before, _ := shard.Resolve(is)
	clean := mustJSON(before[own]) + mustJSON(before[bare]) + mustJSON(before[web])
	spoiled, _ := shard.Resolve(is)
	for _, g := range spoiled {
		spoil(g.Args)
		spoil(g.Vars)
		for name, f := range g.Files {
			spoil(f.Content)
			g.Files[name] = fleet.File{}
		}
		for i := range g.Subnets {
			g.Subnets[i] = "spoiled"
		}
	}
	if mustJSON(before[own])+mustJSON(before[bare])+mustJSON(before[web]) != clean {
		t.Error("two results share memory")
	}
	after, _ := shard.Resolve(is)
	if mustJSON(after[own])+mustJSON(after[bare])+mustJSON(after[web]) != clean {
		t.Error("a result shares memory with the config")
	}
}

func TestResolveRecords(t *testing.T) {
	groups, problems := parse(t, scene).Resolve(records(t, `{
		"default": {
			"web": { "size": 9, "leaving": ["knd01hf7yat00e00r0000000000g0"] },
			"bare": { "size": 0, "instance_type": "huge", "vars": { "level": "entry" } },
			"own": { "template": "knd", "size": 3, "vars": { "own": true } },
			"gone": { "template": "nope", "size": 3, "removed": true, "drain_timeout": "1m" },
		},
	}`))
	if problems != nil {
		t.Fatalf("problems: %v", problems)
	}
	if g := groups[web]; g.Size != 9 || g.StaticSize != 2 || g.InstanceType != "large" ||
		g.Vars["level"] != "group" || len(g.Leaving) != 1 || g.DrainTimeout != 0 {
		t.Errorf("web is %+v: want only the size and leaving changed", g)
	}
	if g := groups[bare]; g.Size != 0 || g.InstanceType != "huge" || g.Vars["level"] != "entry" || g.Vars["t"] != int64(1) {
		t.Errorf("bare is %+v", g)
	}
	if g := groups[own]; g.Size != 3 || g.Static || g.StaticSize != 0 || g.Kind != "knd" || g.Vars["own"] != true ||
		g.DrainTimeout != 7*time.Minute || g.Hashes.Infra == "" {
		t.Errorf("own is %+v", g)
	}
	g := groups[fleet.GroupKey{Tenant: "default", Name: "gone"}]
	if !g.Removed || g.Size != 0 || g.Disabled != "" || g.DrainTimeout != time.Minute {
		t.Errorf("gone is %+v: want it removed whatever its template", g)
	}
}

func TestBadRecordDisablesItsGroupOnly(t *testing.T) {
	shard := parse(t, scene)
	alone, _ := shard.Resolve(nil)
	for entry, want := range map[string]string{
		`"web": { "size": "two" }`:         `web: size: got the string "two": want a whole number`,
		`"web": { "size": -1 }`:            `web: size: -1 is outside the limits: want 0 to 10000`,
		`"web": { "size": 1e9 }`:           `web: size: 1000000000 is outside the limits: want 0 to 10000`,
		`"web": { "Size": 1 }`:             `web: Size: unknown field (have: aborted, args, config_size, deleted_at, drain_timeout, `,
		`"web": { "size": 1, "size": 2 }`:  `web: size: given more than once: again at line 1, column `,
		`"web": null`:                      `web: null is not a value here`,
		`"web": []`:                        `web: got an array: want an object`,
		`"web": { "vars": { "a": null } }`: `web: vars.a: null can't be rendered`,
		`"web": { "leaving": ["me"] }`:     `web: leaving[0]: "me" is not an instance id`,
		`"own": {}`: `own.template: required, ` +
			`since static config names no such group (have: knc, knd)`,
		`"own": { "template": "nope" }`: `own.template: no such template "nope" (have: knc, knd)`,
		`"own": { "template": "knc" }`: `own.subnet_pool: the subnet pool "control" ` +
			`is not for dynamic groups (have: workers)`,
		`"own": { "template": "knd", "subnet_pool": "wrkers" }`:     `own.subnet_pool: no such subnet pool "wrkers" (have: workers)`,
		`"own": { "template": "knd", "load_balancers": ["ww"] }`:    `own.load_balancers[0]: no such load balancer "ww" (have: www)`,
		`"own": { "template": "knd", "args": { "a": "{{ if }}" } }`: `own: args.a: template line 1: missing value for if`,
		`"own": { "template": "knd", "drain_timeout": "25h" }`:      `own: drain_timeout: 1d1h is outside the limits: want 0s to 1d`,
	} {
		is := records(t, `{ "default": { `+entry+`, "other": { "template": "knd", "size": 1 } } }`)
		groups, problems := shard.Resolve(is)
		if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), "groups.default."+want) {
			t.Errorf("%s: problems are %v, want %s", entry, problems, want)
			continue
		}
		key := web
		if strings.HasPrefix(entry, `"own"`) {
			key = own
		}
		if g := groups[key]; !strings.Contains(want, firstWord(g.Disabled)) || g.Disabled == "" || g.Static != (key == web) {
			t.Errorf("%s: the group is %+v", entry, g)
		}
		for k, g := range groups {
			if k != key && (g.Disabled != "" || k != (fleet.GroupKey{Tenant: "default", Name: "other"}) && !reflect.DeepEqual(g, alone[k])) {
				t.Errorf("%s: disturbs %v: %+v", entry, k, g)
			}
		}
	}
}

func firstWord(s string) string { return strings.SplitN(s, ":", 2)[0] }

func TestRecordsWithoutAPlace(t *testing.T) {
	shard := parse(t, scene)
	groups, problems := shard.Resolve(records(t, `{
		"No": { "web": { "template": "knd" } }, "default": { "a--b": {} }, "dev": { "web": { "template": "knd" } },
	}`))
	want := []string{
		"groups.No.web: \"No\" is not a valid id", "groups.default.a--b: \"a--b\" is not a valid id",
		`groups.dev.web: tenant "dev" is not declared in the config of this shard`,
	}
	if len(problems) != len(want) {
		t.Fatalf("problems are %v", problems)
	}
	for i := range want {
		if !strings.HasPrefix(problems[i].String(), want[i]) {
			t.Errorf("problem %d is %v, want %s", i, problems[i], want[i])
		}
	}
	// A tenant that was removed from the config keeps its instances until its groups are
	// removed.
	if g := groups[fleet.GroupKey{Tenant: "dev", Name: "web"}]; len(groups) != 4 || g.Disabled == "" || g.Removed {
		t.Errorf("%d groups, dev/web is %+v", len(groups), g)
	}
}

func TestStaticConfigWinsOverAnOldRecord(t *testing.T) {
	old := records(t, `{ "default": { "web": {
		"template": "knc", "subnet_pool": "control", "size": 6, "removed": true, "drain_timeout": "1m", "load_balancers": [], "args": {},
	} } }`)
	groups, problems := parse(t, scene).Resolve(old)
	var fields []string
	for _, p := range problems {
		if !strings.Contains(p.Message, "ignored: set by static config") {
			t.Errorf("problem %v", p)
		}
		fields = append(fields, p.Path)
	}
	want := []string{"args", "drain_timeout", "load_balancers", "removed", "subnet_pool", "template"}
	if got := strings.ReplaceAll(strings.Join(fields, ","), "groups.default.web.", ""); got != strings.Join(want, ",") {
		t.Errorf("ignored %s", got)
	}
	if g := groups[web]; g.Disabled != "" || g.Removed || g.Template != "knd" || g.Size != 6 || g.SubnetPool != "workers" {
		t.Errorf("web is %+v", g)
	}
	same := records(t, `{ "default": { "web": {
		"template": "knd", "subnet_pool": "workers", "drain_timeout": "0s", "load_balancers": ["www"],
	} } }`)
	if _, problems := parse(t, scene).Resolve(same); problems != nil {
		t.Errorf("an entry that agrees with static config gives %v", problems)
	}
}

func TestOrphan(t *testing.T) {
	g := parse(t, scene).Orphan(own)
	if g.Removed || g.DrainTimeout != 7*time.Minute || g.Key != own || g.Disabled == "" || g.RecordMissing == "" {
		t.Errorf("orphan is %+v", g)
	}
}

func TestAWSNeedsAnInstanceType(t *testing.T) {
	aws := strings.Replace(scene, `{ "kind": "fake" }`, `{ "kind": "aws", "region": "r", "zone": "z" }`, 1)
	if got := problemsOf(t, aws); !strings.HasPrefix(got, `groups.prod.web.instance_type: required with the provider aws`) {
		t.Errorf("got %q", got)
	}
	aws = strings.Replace(aws, `"arch": "arm64",`, `"arch": "arm64", "instance_type": "x",`, 1)
	aws = strings.Replace(aws, `"instance_type": "small",`, ``, 1)
	aws = strings.Replace(aws, `"bare": { "template": "knd" }`, `"bare": { "template": "knd", "instance_type": "x" }`, 1)
	groups, _ := parse(t, aws).Resolve(records(t, `{ "default": { "own": { "template": "knd" } } }`))
	if g := groups[own]; !strings.HasPrefix(g.Disabled, "instance_type: required") {
		t.Errorf("own is %+v", g)
	}
}
