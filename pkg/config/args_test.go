package config_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// picky is a provider that knows small machines with a disk of at most 9, and one-word labels;
// each machine needs an image. It records its calls.
type picky struct{ asked []string }

func (p *picky) checks() config.Checks {
	return config.Checks{Machine: func(g fleet.Group, args map[string]any, _ []byte) (wrong config.Problems) {
		p.asked = append(p.asked, fmt.Sprint(args))
		bad := func(path, message string) { wrong = append(wrong, config.Problem{Path: path, Message: message}) }
		if args["image"] == nil {
			bad("args.image", "required")
		}
		if disk, ok := args["disk"].(int64); ok && disk > 9 {
			bad("args.disk", "too large")
		}
		labels, _ := args["labels"].(map[string]any)
		for name, label := range labels {
			if text, _ := label.(string); strings.Contains(text, " ") {
				bad("args.labels."+name, "more than a word")
			}
		}
		if g.InstanceType == "huge" {
			bad("instance_type", "no such type")
		}
		slices.SortFunc(wrong, func(a, b config.Problem) int { return strings.Compare(a.Path, b.Path) })
		return wrong
	}}
}

// pickyText is a config that the provider accepts.
const pickyText = `{
  "cluster": { "id": "c", "secrets": { "encryption_key": { "provider": "env", "source": "KEY" } } },
  "server": { "provider": { "kind": "fake", "region": "r" }, "subnet_pools": { "workers": ["a"] } },
  "images": { "os": { "provider": "aws", "filters": [{ "name": "name", "values": ["x"] }] } },
  "defaults": { "args": { "image": "{{ .Image.os }}", "labels": { "shard": "{{ .Server.Shard }}" } } },
  "templates": {
    "knd": { "kind": "knd", "arch": "amd64", "subnet_pool": "workers", "args": { "disk": 5, "labels": { "id": "{{ .Instance.ID }}" } } },
    "lone": { "kind": "lon", "arch": "amd64", "subnet_pool": "workers", "vars": { "team": "ops" },
      "args": { "labels": { "team": "{{ .Vars.team }}" } } }
  },
  "groups": { "default": { "web": { "template": "knd", "args": { "labels": { "role": "web" } } }, "db": { "template": "knd" } } }
}`

// TestProviderArgs: a provider's problem has the path of the layer that set the field; every
// group is checked by its own, rendered args.
func TestProviderArgs(t *testing.T) {
	for name, c := range map[string]struct{ old, replaced, want string }{
		"nothing wrong":   {"", "", ""},
		"of a group":      {`"role": "web"`, `"role": "web two"`, "groups.default.web.args.labels.role: more than a word"},
		"of a template":   {`"disk": 5`, `"disk": 50`, "templates.knd.args.disk: too large"},
		"of the defaults": {`"{{ .Server.Shard }}"`, `"a {{ .Server.Shard }}"`, "defaults.args.labels.shard: more than a word"},
		"overridden": {`"db": { "template": "knd" }`, `"db": { "template": "knd", "args": { "disk": 50 } }`,
			"groups.default.db.args.disk: too large"},
		"of no layer": {`"image": "{{ .Image.os }}", `, ``,
			"groups.default.db.args.image: required\ngroups.default.web.args.image: required\ntemplates.lone.args.image: required"},
		"of an instance": {`"{{ .Instance.ID }}"`, `"{{ .Instance.ID }} {{ .Instance.Kind }}"`,
			"templates.knd.args.labels.id: more than a word"},
		"type, template's": {`"knd": { "kind"`, `"knd": { "instance_type": "huge", "kind"`, "templates.knd.instance_type: no such type"},
		"type, group's": {`"db": { "template": "knd" }`, `"db": { "template": "knd", "instance_type": "huge" }`,
			"groups.default.db.instance_type: no such type"},
		"of a lone template": {`"team": "ops"`, `"team": "ops of x"`, "templates.lone.args.labels.team: more than a word"},
		"not known before":   {`"vars": { "team": "ops" },`, ``, ""}, // an instance may set it
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(pickyText, c.old) {
				t.Fatalf("the config has no %s", c.old)
			}
			var provider picky
			_, err := config.ParseWith([]byte(strings.Replace(pickyText, c.old, c.replaced, 1)), provider.checks())
			var problems config.Problems
			if err != nil && !errors.As(err, &problems) {
				t.Fatal(err)
			}
			var have []string
			for _, p := range problems {
				have = append(have, p.String())
			}
			if got := strings.Join(have, "\n"); got != c.want {
				t.Errorf("problems:\n%s\nwant:\n%s", got, c.want)
			}
			for _, args := range provider.asked {
				if strings.Contains(args, "{{") {
					t.Errorf("asked about args that are not rendered: %s", args)
				}
			}
		})
	}
}

// TestProviderArgsOfChanges: an edit is checked by its result, unless it only changes the
// size, and a single instance by its overrides.
func TestProviderArgsOfChanges(t *testing.T) {
	var provider picky
	text := strings.Replace(pickyText, `"disk": 5, "labels": {`,
		`"disk": 5, "labels": { "note": "{{ if has .Vars \"note\" }}{{ .Vars.note }}{{ end }}",`, 1)
	s, err := config.ParseWith([]byte(text), provider.checks())
	if err != nil {
		t.Fatal(err)
	}
	web := fleet.GroupKey{Tenant: "default", Name: "web"}
	upsert := func(c config.Change) error {
		_, err := s.ChangeGroup(web, config.GroupRecord{}, c, provider.checks())
		return err
	}
	for want, c := range map[string]config.Change{
		"":                                   {Size: ptr(3), Vars: map[string]any{"note": "x"}},
		"args.labels.note: more than a word": {Vars: map[string]any{"note": "x y"}},
		"instance_type: no such type":        {InstanceType: ptr("huge")},
	} {
		if err := upsert(c); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	// A group that became invalid since can still be scaled down.
	huge := record(t, `{ "instance_type": "huge" }`)
	if _, err := s.ChangeGroup(web, huge, config.Change{Size: ptr(0)}, provider.checks()); err != nil {
		t.Errorf("make a group smaller that can't be made any more: %v", err)
	}

	groups, _ := s.Resolve(nil)
	lone, err := config.ParseWith([]byte(strings.Replace(pickyText, `"vars": { "team": "ops" },`, ``, 1)), provider.checks())
	if err != nil {
		t.Fatal(err)
	}
	single := fleet.GroupKey{Tenant: "default", Name: "lone"}
	made, err := lone.ChangeGroup(single, config.GroupRecord{}, config.Change{Template: ptr("lone")}, provider.checks())
	if err != nil {
		t.Fatal(err)
	}
	loneGroups, _ := lone.Resolve(config.GroupRecords{single: made})
	for name, c := range map[string]struct {
		shard *config.Shard
		group fleet.Group
		o     fleet.Overrides
		want  string
	}{
		"good":         {s, groups[web], fleet.Overrides{Vars: map[string]any{"note": "x"}}, ""},
		"bad var":      {s, groups[web], fleet.Overrides{Vars: map[string]any{"note": "x y"}}, "args.labels.note: more than a word"},
		"bad type":     {s, groups[web], fleet.Overrides{InstanceType: "huge"}, "instance_type: no such type"},
		"brings a var": {lone, loneGroups[single], fleet.Overrides{Vars: map[string]any{"team": "x"}}, ""},
		"lacks a var":  {lone, loneGroups[single], fleet.Overrides{}, "vars: the machines of group default/lone: render args.labels.team"},
	} {
		err := c.shard.CheckOverrides(c.group, c.o, provider.checks())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestProviderArgsOfRepetitions: a change that repeats all fields of a group may still scale it
// down although the provider would refuse to create it.
func TestProviderArgsOfRepetitions(t *testing.T) {
	var provider picky
	s, err := config.ParseWith([]byte(pickyText), provider.checks())
	if err != nil {
		t.Fatal(err)
	}
	is := records(t, `{ "default": {
	  "web": { "size": 3, "instance_type": "huge", "vars": { "n": 1, "deep": { "list": [1.5, "x"] } } },
	  "own": { "size": 3, "instance_type": "huge", "template": "knd", "subnet_pool": "workers" },
	  "gone": { "instance_type": "huge", "template": "knd", "removed": true }
	} }`)
	vars := map[string]any{"n": 1, "deep": map[string]any{"list": []any{1.5, "x"}}}
	for name, c := range map[string]struct {
		group   string
		change  config.Change
		refused bool
	}{
		"all of a static group":     {"web", config.Change{Size: ptr(1), Template: ptr("knd"), InstanceType: ptr("huge"), Vars: vars}, false},
		"all of a group of its own": {"own", config.Change{Size: ptr(1), Template: ptr("knd"), SubnetPool: ptr("workers")}, false},
		"other vars":                {"own", config.Change{Size: ptr(1), Vars: vars}, true},
		"a removed group":           {"gone", config.Change{Size: ptr(1), Template: ptr("knd"), InstanceType: ptr("huge")}, true},
		"a new group":               {"new", config.Change{Size: ptr(1), Template: ptr("knd"), InstanceType: ptr("huge")}, true},
	} {
		key := fleet.GroupKey{Tenant: "default", Name: c.group}
		_, err := s.ChangeGroup(key, is[key], c.change, provider.checks())
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
