package config_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// excused parses a text that an earlier version accepted, and checks that it would be refused
// as a new one.
func excused(t *testing.T, text string) *config.Shard {
	t.Helper()
	if _, err := config.Parse([]byte(text)); err == nil {
		t.Error("the same text is no mistake where it is new")
	}
	shard, err := config.ParseAccepted([]byte(text))
	if err != nil {
		t.Fatal("what was accepted can't run: ", err)
	}
	return shard
}

// TestAcceptedHoldsTheGroupsConcerned: an accepted text's violations of tenant rules hold
// exactly the groups concerned.
func TestAcceptedHoldsTheGroupsConcerned(t *testing.T) {
	const both = `"default": { "web": { "template": "theirs", "size": 2 } }, "blue": { "web": { "template": "theirs", "size": 3 },
		"plain": { "template": "open", "size": 1 } }, "red": { "web": { "template": "open" } }`
	const secret = `"a.conf": { "kind": "secret", "source": "db" }`
	const forBlue = `"tenants": ["default", "blue"],`
	for name, c := range map[string]struct {
		with []string
		says string // condition of blue/web
		also string // other held groups
	}{
		"a template": {
			[]string{"GROUPS", both}, `template: the template "theirs" is not for tenant "blue": want templates.theirs.tenants of`, "",
		},
		"a pool": {
			[]string{"GROUPS", both, "TEMPLATE", forBlue, "NAMED", "closed"}, `subnet_pool: the subnet pool "closed" is not for tenant "blue"`, "",
		},
		"a load balancer": {
			[]string{"GROUPS", strings.Replace(both, `"size": 3`, `"size": 3, "load_balancers": ["www"]`, 1), "TEMPLATE", forBlue},
			`load_balancers[0]: the load balancer "www" is not for tenant "blue"`, "",
		},
		"a secret": {
			[]string{"GROUPS", both, "TEMPLATE", forBlue, "THEFILES", secret},
			`templates.theirs.files["a.conf"].source: the secret "db" is not for tenant "blue": want secrets.db.tenants of`, "",
		},
		"a stored file": {
			[]string{"GROUPS", both, "TEMPLATE", forBlue, "THEFILES", `"a.conf": { "kind": "storage", "source": "files/a" }`},
			`the stored file "files/a" is not for tenant "blue"`, "",
		},
		"a certificate": {
			[]string{
				"GROUPS", both, "TEMPLATE", forBlue,
				"THEFILES", `"a.crt": { "kind": "certificate", "template": "node", "key": { "source": "agent", "name": "n" } }`,
			},
			`the certificate "node" is not for tenant "blue"`, "",
		},
		"an image": {
			[]string{"GROUPS", both, "TEMPLATE", forBlue, "ARG", "{{ .Image.debian }}"},
			`templates.theirs.args.i: the image "debian" is not for tenant "blue"`, "",
		},
		"an image of its own args": {
			[]string{"GROUPS", strings.Replace(both, `"size": 3`, `"size": 3, "args": { "j": "{{ .Image.debian }}" }`, 1), "TEMPLATE", forBlue},
			`args.j: the image "debian" is not for tenant "blue"`, "",
		},
		"defaults that say not whose": {
			[]string{"GROUPS", both, "TEMPLATE", forBlue, "DEFAULTS", `"vars": { "token": "x" }`},
			`defaults.tenants: it does not say whether the defaults apply to tenant "blue"`, "blue/plain red/web",
		},
	} {
		t.Run(name, func(t *testing.T) {
			shard := excused(t, sharedWith(c.with...))
			groups, problems := shard.Resolve(nil)
			var held []string
			other := map[string]string{"blue": `"red"`, "red": `"blue"`}
			for key, g := range groups {
				if g.FilesHeld {
					t.Errorf("the machines of %s get no files", key)
				}
				if g.Disabled == "" {
					continue
				}
				if held = append(held, key.String()); strings.Contains(g.Disabled, other[key.Tenant]) || !strings.Contains(g.Disabled, "no machine") {
					t.Errorf("%s is held: %s", key, g.Disabled)
				}
			}
			if want := strings.Fields("blue/web " + c.also); len(held) != len(want) {
				t.Errorf("held are %v, want %v", held, want)
			}
			g := groups[fleet.GroupKey{Tenant: "blue", Name: "web"}]
			if !strings.Contains(g.Disabled, c.says) || g.Size != 3 || g.Template != "theirs" || g.Removed {
				t.Errorf("blue/web is %+v, want it held, because %s", g, c.says)
			}
			for _, p := range problems {
				if !strings.HasPrefix(p.Path, "groups.") {
					t.Errorf("a problem of no group: %v", p)
				}
			}
			for _, f := range g.Files {
				if err := shard.CheckFile("blue", f); err != nil {
					t.Errorf("a file that was accepted is refused: %v", err)
				}
			}
			if err := shard.CheckFile("red", fleet.File{Kind: "secret", Source: "db"}); err == nil {
				t.Error("a tenant has a secret that none of its groups had")
			}
		})
	}
}

// TestAcceptedQuotas: static groups that exceed a later introduced quota are held, and no other
// tenant's groups.
func TestAcceptedQuotas(t *testing.T) {
	groups := `"blue": { "web": { "template": "open", "size": 900 }, "more": { "template": "open", "size": 200 } },
		"red": { "web": { "template": "open", "size": 1 } }`
	shard := excused(t, sharedWith("GROUPS", groups))
	resolved, _ := shard.Resolve(records(t, `{ "blue": { "own": { "template": "open", "size": 1 } } }`))
	var held []string
	for key, g := range resolved {
		if g.Disabled != "" {
			held = append(held, key.String())
		}
	}
	web := resolved[fleet.GroupKey{Tenant: "blue", Name: "web"}]
	if len(held) != 2 || web.Size != 900 || web.FilesHeld ||
		!strings.Contains(web.Disabled, "tenants.blue.quota.instances: 1000 are allowed, but the groups of this config need 1100") {
		t.Errorf("%v are held, and web is %+v", held, web)
	}
}

// TestAcceptedIsDefinedAsItWas: the groups of a text from before the lists of tenants keep their
// definitions, including the defaults; dynamic groups on its templates keep receiving files.
func TestAcceptedIsDefinedAsItWas(t *testing.T) {
	replace := func(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }
	old := replace(sharedWith("DEFAULTS", `"vars": { "token": "x" }`, "THEFILES", `"a.conf": { "kind": "secret", "source": "db" }`,
		"GROUPS", `"blue": { "web": { "template": "open", "size": 3 } }`),
		`"tenants": ["*"], "kind"`, `"kind"`, `{ "subnets": ["a"], "tenants": ["*"] }`, `["a"]`)
	open := sharedWith("DEFAULTS", `"tenants": ["*"], "vars": { "token": "x" }`,
		"GROUPS", `"blue": { "web": { "template": "open", "size": 3 } }`)
	all := records(t, `{ "blue": { "jobs": { "template": "theirs", "size": 3 } } }`)
	shard := excused(t, old)
	was, _ := parse(t, open).Resolve(nil)
	groups, _ := shard.Resolve(all)
	web := fleet.GroupKey{Tenant: "blue", Name: "web"}
	if groups[web].Hashes != was[web].Hashes || !reflect.DeepEqual(groups[web].Vars, was[web].Vars) {
		t.Errorf("web is %+v, want the definition of %+v", groups[web], was[web])
	}
	jobs := groups[fleet.GroupKey{Tenant: "blue", Name: "jobs"}]
	if jobs.Disabled == "" || jobs.FilesHeld || jobs.Files["a.conf"].Source != "db" {
		t.Errorf("jobs is %+v, want it held with its files", jobs)
	}
	if err := shard.CheckFile("blue", jobs.Files["a.conf"]); err != nil {
		t.Error(err)
	}
}

// TestAcceptedOtherwiseWrong: other mistakes than violations of tenant rules are errors.
func TestAcceptedOtherwiseWrong(t *testing.T) {
	const group = `"blue": { "web": { "template": "theirs" } }`
	for _, with := range [][]string{
		{"GROUPS", `"blue": { "web": { "template": "nope" } }`},
		{"GROUPS", group, "TEMPLATE", `"tenants": ["nope"],`},
		{"GROUPS", group, "SECRETS", `"ca.key": {}`},
		{"GROUPS", `"blue": { "web": { "template": "theirs", "size": -1 } }`},
	} {
		if _, err := config.ParseAccepted([]byte(sharedWith(with...))); err == nil {
			t.Error(fmt.Sprint("accepted: ", with))
		}
	}
}
