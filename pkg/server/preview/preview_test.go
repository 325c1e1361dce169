package preview_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/preview"
)

// shard is a config with the texts in pairs replaced.
func shard(t *testing.T, pairs ...string) *config.Shard {
	t.Helper()
	text := `{
	  "cluster": { "id": "c", "secrets": { "encryption_key": { "provider": "env", "source": "KEY" } } },
	  "server": {
	    "provider": { "kind": "process" },
	    "bind": { "health_addr": ":1", "election_addr": ":2", "registration_addr": ":3", "operator_addr": ":4", "agent_addr": ":5" },
	    "subnet_pools": { "workers": ["a"] }, "rotation": { "max_surge": 3 }
	  },
	  "templates": {
	    "knd": {
	      "kind": "knd", "arch": "amd64", "subnet_pool": "workers", "args": { "x": 1 }, "vars": { "n": 1 },
	      "files": {
	        "plain.conf": { "kind": "string", "content": "text" },
	        "n.conf": { "kind": "string", "content": "n is {{ .Vars.n }}" },
	        "tls.crt": { "kind": "certificate", "template": "tls", "key": { "source": "agent", "name": "tls" } },
	        "id.conf": { "kind": "string", "content": "id is {{ .Instance.ID }}" }
	      }
	    }
	  },
	  "certificates": { "tls": { "kind": "server", "cn": "{{ .Instance.ID }}", "ttl": 24 } },
	  "groups": { "default": { "web": { "template": "knd", "size": 4, "rotation": { "max_surge": 2 } }, ` +
		`"jobs": { "template": "knd", "size": 1 } } }
	}`
	for n := 0; n < len(pairs); n += 2 {
		if !strings.Contains(text, pairs[n]) {
			t.Fatalf("no %q to replace", pairs[n])
		}
	}
	s, err := config.Parse([]byte(strings.NewReplacer(pairs...).Replace(text)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func key(name string) fleet.GroupKey { return fleet.GroupKey{Tenant: "default", Name: name} }

// record is the record of a group.
func record(t *testing.T, text string) config.GroupRecord {
	t.Helper()
	r, err := config.DecodeGroup([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fleetOf returns running instances of a group, as built from a config.
func fleetOf(t *testing.T, s *config.Shard, name string, count int, onDemand bool) (all []fleet.Instance) {
	t.Helper()
	g, ok, problems := s.ResolveGroup(key(name), config.GroupRecord{})
	if !ok || len(problems) > 0 {
		t.Fatalf("%s: %v, %v", name, ok, problems)
	}
	for range count {
		all = append(all, fleet.Instance{Tenant: "default", Group: name, Phase: fleet.Running, Hashes: g.Hashes, OnDemand: onDemand})
	}
	return all
}

// TestOf: what a switch does to the groups.
func TestOf(t *testing.T) {
	const web, jobs = `"web": { "template": "knd", "size": 4, "rotation": { "max_surge": 2 } }, `, `, "jobs": { "template": "knd", "size": 1 }`
	changed := func(g preview.Group) preview.Group {
		g.Key, g.Change, g.SizeBefore, g.Instances = key("web"), preview.Changed, 4, 4
		if g.Size == 0 {
			g.Size = 4
		}
		return g
	}
	both := func(of preview.Group) []preview.Group { // of jobs, which has no instances, and of web
		other := preview.Group{Key: key("jobs"), Change: preview.Changed, SizeBefore: 1, Size: 1, Fields: of.Fields}
		return []preview.Group{other, changed(of)}
	}
	for name, tt := range map[string]struct {
		pairs   []string
		records map[string]string
		alter   func([]fleet.Instance)
		want    []preview.Group
	}{
		"nothing": {},
		"one more": {pairs: []string{`"size": 4`, `"size": 5`},
			want: []preview.Group{changed(preview.Group{Size: 5, Fields: []string{"size"}})}},
		"a new group": {pairs: []string{jobs, jobs + `, "more": { "template": "knd", "size": 2 }`},
			want: []preview.Group{{Key: key("more"), Change: preview.Added, Size: 2}}},
		"a group goes": {pairs: []string{web, ""},
			want: []preview.Group{{Key: key("web"), Change: preview.Removed, SizeBefore: 4, Instances: 4}}},
		"a group lives on by its record": {pairs: []string{web, ""}, records: map[string]string{"web": `{ "size": 4, "revision": 1 }`},
			want: []preview.Group{{Key: key("web"), Change: preview.Outlives, SizeBefore: 4, Size: 4, Instances: 4}}},
		"a dynamic group becomes static": {pairs: []string{jobs, jobs + `, "own": { "template": "knd", "size": 2 }`},
			records: map[string]string{"own": `{ "template": "knd", "size": 2, "revision": 1 }`},
			want:    []preview.Group{{Key: key("own"), Change: preview.Adopted, SizeBefore: 2, Size: 2}}},
		"args replace": {pairs: []string{`"x": 1`, `"x": 2`},
			want: both(preview.Group{Replaced: 4, AtATime: 2, Fields: []string{"args"}})},
		"the surge of the next config counts": {pairs: []string{`"x": 1`, `"x": 2`, `"max_surge": 2`, `"max_surge": 9`},
			want: []preview.Group{
				{Key: key("jobs"), Change: preview.Changed, SizeBefore: 1, Size: 1, Fields: []string{"args"}},
				changed(preview.Group{Replaced: 4, AtATime: 3, Fields: []string{"args", "rotation"}}),
			}},
		"a smaller group replaces fewer": {pairs: []string{`"x": 1`, `"x": 2`, `"size": 4`, `"size": 1`},
			want: []preview.Group{
				{Key: key("jobs"), Change: preview.Changed, SizeBefore: 1, Size: 1, Fields: []string{"args"}},
				changed(preview.Group{Size: 1, Replaced: 1, AtATime: 1, Fields: []string{"args", "size"}}),
			}},
		"leaving and on-demand instances are not replaced": {pairs: []string{`"x": 1`, `"x": 2`},
			alter: func(all []fleet.Instance) { all[0].Phase, all[1].OnDemand = fleet.Draining, true },
			want: []preview.Group{
				{Key: key("jobs"), Change: preview.Changed, SizeBefore: 1, Size: 1, Fields: []string{"args"}},
				{Key: key("web"), Change: preview.Changed, SizeBefore: 4, Size: 4, Instances: 2, Replaced: 2, AtATime: 2, Fields: []string{"args"}},
			}},
		"instances of unknown hashes are not replaced": {pairs: []string{`"x": 1`, `"x": 2`},
			alter: func(all []fleet.Instance) {
				for n := range all {
					all[n].Hashes = fleet.Hashes{}
				}
			}, want: both(preview.Group{Fields: []string{"args"}})},
		"a missing record holds the group": {pairs: []string{`"x": 1`, `"x": 2`},
			records: map[string]string{"web": `{ "size": 4, "missing": true, "revision": 1 }`},
			want:    both(preview.Group{Fields: []string{"args"}})},
		"vars are pushed to files that use them": {pairs: []string{`"n": 1`, `"n": 2`},
			want: both(preview.Group{Pushed: []string{"n.conf"}, Fields: []string{"vars"}})},
		"a file's content is pushed": {pairs: []string{`"content": "text"`, `"content": "other"`},
			want: both(preview.Group{Pushed: []string{"plain.conf"}, Fields: []string{"files"}})},
		"a certificate's definition is pushed": {pairs: []string{`"ttl": 24`, `"ttl": 48`},
			want: []preview.Group{changed(preview.Group{Pushed: []string{"tls.crt"}})}},
		"a file goes and another comes": {pairs: []string{`"plain.conf": {`, `"fancy.conf": {`},
			want: both(preview.Group{Pushed: []string{"fancy.conf"}, Dropped: []string{"plain.conf"}, Fields: []string{"files"}})},
		"files become optional": {pairs: []string{`"files": {`, `"require_files": false, "files": {`},
			want: both(preview.Group{Fields: []string{"require_files"}})},
		"a removed group stays removed": {records: map[string]string{"own": `{ "template": "knd", "removed": true, "revision": 1 }`}},
	} {
		t.Run(name, func(t *testing.T) {
			from := shard(t)
			in := preview.Input{From: from, To: shard(t, tt.pairs...), Records: config.GroupRecords{}, Instances: fleetOf(t, from, "web", 4, false)}
			for name, text := range tt.records {
				in.Records[key(name)] = record(t, text)
			}
			if tt.alter != nil {
				tt.alter(in.Instances)
			}
			got := preview.Of(in)
			if !reflect.DeepEqual(got.Groups, tt.want) {
				t.Errorf("got %+v\nwant %+v", got.Groups, tt.want)
			}
			if got.ShardSurge != 3 {
				t.Errorf("the shard's surge is %d, want 3", got.ShardSurge)
			}
		})
	}
}

// TestBothWays: a switch back, in the middle of a rotation, replaces what was replaced.
func TestBothWays(t *testing.T) {
	a, b := shard(t), shard(t, `"x": 1`, `"x": 2`)
	mixed := append(fleetOf(t, a, "web", 3, false), fleetOf(t, b, "web", 1, false)...)
	for _, tt := range []struct {
		from, to *config.Shard
		want     int
	}{{a, b, 3}, {b, a, 1}} {
		got := preview.Of(preview.Input{From: tt.from, To: tt.to, Instances: mixed}).Groups
		if len(got) != 2 || got[1].Replaced != tt.want {
			t.Errorf("%+v, want %d replaced", got, tt.want)
		}
	}
}

// TestOverrides: a size of the next config that a record hides.
func TestOverrides(t *testing.T) {
	in := preview.Input{
		From: shard(t), To: shard(t, `"size": 4`, `"size": 5`),
		Records: config.GroupRecords{key("web"): record(t, `{ "size": 4, "manager": "o", "revision": 1 }`)},
	}
	got := preview.Of(in)
	want := []preview.Override{{Key: key("web"), StaticSize: 5, Size: 4, Manager: "o"}}
	if !reflect.DeepEqual(got.Overrides, want) || len(got.Groups) > 0 {
		t.Errorf("got %+v", got)
	}
}

// TestSharedSurge: a percentage of the shard's surge is of the sizes of all groups.
func TestSharedSurge(t *testing.T) {
	in := preview.Input{From: shard(t), To: shard(t, `"max_surge": 3`, `"max_surge": "40%"`)}
	if got := preview.Of(in); got.ShardSurge != 2 {
		t.Errorf("got %d, want 2 of 5", got.ShardSurge)
	}
}
