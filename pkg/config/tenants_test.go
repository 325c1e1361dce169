package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// shared has what tenants can share; PLACES is replaced by each row. Template theirs is
// default's, and uses everything.
const shared = `{
  "cluster": { "id": "c", "secrets": { "encryption_key": { "provider": "env", "source": "KEY" } } },
  "server": { "provider": { "kind": "fake" }, "subnet_pools": { "workers": { "subnets": ["a"], "tenants": ["*"] }, "closed": POOL } },
  "tenants": { "blue": {}, "red": {} },
  "secrets": { SECRETS },
  "files": { FILES },
  "load_balancers": { "www": { LB "provider": "aws", "target_group_arns": ["arn:1"] } },
  "images": { "debian": { IMAGE "provider": "aws", "fallback": "ami-1" } },
  "certificates": { "node": { CERT "kind": "client", "cn": "system:node:{{ .Instance.ID }}", "organization": ["system:nodes"] } },
  "defaults": { DEFAULTS },
  "templates": {
    "theirs": { TEMPLATE "kind": "knd", "arch": "amd64", "subnet_pool": "NAMED", "args": { "i": "ARG" }, "files": { THEFILES } },
    "open": { "tenants": ["*"], "kind": "knd", "arch": "amd64", "subnet_pool": "workers" },
  },
  "groups": { GROUPS },
}`

func sharedWith(pairs ...string) string {
	defaults := []string{
		"NAMED", "workers", "POOL", `["b"]`, "SECRETS", "", "THEFILES", "", "FILES", "", "LB", "", "IMAGE", "", "CERT", "",
		"DEFAULTS", "", "TEMPLATE", "", "ARG", "x", "GROUPS", "",
	}
	return strings.NewReplacer(append(pairs, defaults...)...).Replace(shared)
}

// TestWhoMayUseWhat: everything that a tenant's groups use, directly or indirectly, has to list
// that tenant; otherwise the problem has the path, the tenant, and the list to write.
func TestWhoMayUseWhat(t *testing.T) {
	blue := func(fields string) string { return `"blue": { "web": { "template": "theirs" ` + fields + ` } }` }
	const secret = `"a.conf": { "kind": "secret", "source": "db-master-password" }`
	const stored = `"a.conf": { "kind": "storage", "source": "files/a/b.conf" }`
	const cert = `"a.crt": { "kind": "certificate", "template": "node", "key": { "source": "agent", "name": "n" } }`
	const forBlue, forAll = `"tenants": ["blue"],`, `"tenants": ["*"],`
	for name, c := range map[string]struct {
		with []string
		want string // empty: it is valid
	}{
		"a template of default's": {[]string{"GROUPS", blue("")},
			`groups.blue.web.template: the template "theirs" is not for tenant "blue": want templates.theirs.tenants: ["default", "blue"]`},
		"a template for blue": {[]string{"GROUPS", blue(""), "TEMPLATE", forBlue}, ""},
		"a template for all":  {[]string{"GROUPS", blue(""), "TEMPLATE", forAll}, ""},
		"default on what is for blue": {
			[]string{"GROUPS", `"default": { "web": { "template": "theirs" } }`, "TEMPLATE", forBlue},
			`groups.default.web.template`,
		},
		"the pool of a template": {
			[]string{"GROUPS", blue(""), "TEMPLATE", forBlue, "NAMED", "closed"},
			`the subnet pool "closed" is not for tenant "blue": want server.subnet_pools.closed.tenants: ["default", "blue"]`,
		},
		"a group's own pool": {
			[]string{"GROUPS", blue(`, "subnet_pool": "closed"`), "TEMPLATE", forBlue},
			`groups.blue.web.subnet_pool`,
		},
		"an own pool beside": {[]string{"GROUPS", blue(`, "subnet_pool": "workers"`), "TEMPLATE", forBlue, "NAMED", "closed"}, ""},
		"a load balancer": {
			[]string{"GROUPS", blue(`, "load_balancers": ["www"]`), "TEMPLATE", forBlue},
			`groups.blue.web.load_balancers[0]: the load balancer "www" is not for tenant "blue"`,
		},
		"a load balancer for blue": {[]string{"GROUPS", blue(`, "load_balancers": ["www"]`), "TEMPLATE", forBlue, "LB", forBlue}, ""},
		"a secret": {
			[]string{"TEMPLATE", forBlue, "THEFILES", secret},
			`source: the secret "db-master-password" is not for tenant "blue": want secrets.db-master-password.tenants: ["default", "blue"]`,
		},
		"a secret of default's own": {[]string{"THEFILES", secret}, ""},
		"a secret for blue": {
			[]string{"TEMPLATE", forBlue, "THEFILES", secret, "SECRETS", `"db-master-password": { "tenants": ["blue"] }`},
			"",
		},
		"a secret that default lost": {
			[]string{"THEFILES", secret, "SECRETS", `"db-master-password": { "tenants": ["blue"] }`},
			`is not for tenant "default": want secrets.db-master-password.tenants: ["blue", "default"]`,
		},
		"a secret by pattern": {
			[]string{"TEMPLATE", forBlue, "THEFILES", secret, "SECRETS", `"db-*": { "tenants": ["blue"] }`},
			"",
		},
		"the longest pattern": {
			[]string{"TEMPLATE", forBlue, "THEFILES", secret, "SECRETS", `"*": { "tenants": ["*"] },
			"db-*": { "tenants": ["red"] }`}, `want secrets["db-*"].tenants: ["red", "blue"]`,
		},
		"a name before a pattern": {
			[]string{"TEMPLATE", forBlue, "THEFILES", secret, "SECRETS", `"db-*": { "tenants": ["*"] },
			"db-master-password": {}`}, `want secrets.db-master-password.tenants`,
		},
		"all tenants, a secret of two": {
			[]string{"TEMPLATE", forAll, "THEFILES", secret, "SECRETS", `"db-*": { "tenants": ["default", "blue"] }`},
			`is not for tenant "red"`,
		},
		"all tenants, a secret of none": {
			[]string{"TEMPLATE", forAll, "THEFILES", secret},
			`is not for tenants blue, red: want secrets.db-master-password.tenants: ["default", "blue", "red"]`,
		},
		"a stored file": {
			[]string{"TEMPLATE", forBlue, "THEFILES", stored},
			`the stored file "files/a/b.conf" is not for tenant "blue": want files["files/a/b.conf"].tenants: ["default", "blue"]`,
		},
		"a folder for blue": {
			[]string{"TEMPLATE", forBlue, "THEFILES", stored, "FILES", `"files/a/": { "tenants": ["blue"] }`},
			"",
		},
		"a folder's folder": {
			[]string{"TEMPLATE", forBlue, "THEFILES", stored, "FILES", `"files/": { "tenants": ["*"] },
			"files/a/": {}`}, `want files["files/a/"].tenants`,
		},
		"a folder that begins alike": {
			[]string{"TEMPLATE", forBlue, "THEFILES", stored, "FILES", `"files/a": { "tenants": ["blue"] }`},
			`want files["files/a/b.conf"].tenants`,
		},
		"a certificate": {
			[]string{"TEMPLATE", forBlue, "THEFILES", cert},
			`files["a.crt"].template: the certificate "node" is not for tenant "blue": want certificates.node.tenants: ["default", "blue"]`,
		},
		"a certificate for blue": {[]string{"TEMPLATE", forBlue, "THEFILES", cert, "CERT", forBlue}, ""},
		"an image": {
			[]string{"TEMPLATE", forBlue, "ARG", "{{ .Image.debian }}"},
			`templates.theirs.args.i: the image "debian" is not for tenant "blue": want images.debian.tenants: ["default", "blue"]`,
		},
		"an image for blue": {[]string{"TEMPLATE", forBlue, "ARG", "{{ .Image.debian }}", "IMAGE", forBlue}, ""},
		"an image of a group's args": {
			[]string{"TEMPLATE", forBlue, "GROUPS", blue(`, "args": { "j": "{{ index .Image \"debian\" }}" }`)},
			`groups.blue.web.args.j: the image "debian" is not for tenant "blue"`,
		},
		"defaults of one tenant": {
			[]string{"DEFAULTS", `"vars": { "token": "x" }`},
			`defaults.tenants: required with tenants other than "default": want those whose groups have the defaults`,
		},
		"defaults that say whose": {[]string{"DEFAULTS", `"tenants": ["default"], "vars": { "token": "x" }`}, ""},
		"an image of the defaults": {
			[]string{"DEFAULTS", `"tenants": ["*"], "args": { "i": "{{ .Image.debian }}" }`},
			`defaults.args.i: the image "debian" is not for tenants blue, red`,
		},
		"a tenant that is not declared": {
			[]string{"TEMPLATE", `"tenants": ["bleu"],`},
			`templates.theirs.tenants[0]: no such tenant "bleu" (have: blue, default, red)`,
		},
		"no tenant": {
			[]string{"TEMPLATE", `"tenants": [],`},
			`templates.theirs.tenants: empty: want the tenants that may use it, such as ["default"], or ["*"] for all`,
		},
		"all and one": {
			[]string{"TEMPLATE", `"tenants": ["*", "blue"],`},
			`templates.theirs.tenants[0]: "*" is all tenants: want it alone`,
		},
		"one twice": {
			[]string{"CERT", `"tenants": ["blue", "blue"],`},
			`certificates.node.tenants[1]: "blue" is listed already`,
		},
		"a pool for a tenant that is not declared": {
			[]string{"POOL", `{ "subnets": ["b"], "tenants": ["x"] }`},
			`server.subnet_pools.closed.tenants[0]: no such tenant "x"`,
		},
		"a pool without subnets": {[]string{"POOL", `{ "tenants": ["*"] }`}, `server.subnet_pools.closed.subnets: empty`},
		"a pool of a wrong kind": {
			[]string{"POOL", `"b"`},
			`server.subnet_pools.closed: got the string "b": want an array of subnets, or an object with subnets and tenants`,
		},
		"a pool with a mistake": {
			[]string{"POOL", `{ "subnets": ["b"], "tenant": ["blue"] }`},
			`server.subnet_pools.closed.tenant: unknown field (have: subnets, tenants)`,
		},
		"the CA's key": {
			[]string{"SECRETS", `"CA.key": {}`},
			`secrets["CA.key"]: the secret "CA.key" never leaves the servers`,
		},
		"no pattern": {[]string{"SECRETS", `"a*b*": {}`}, `secrets["a*b*"]: "a*b*" is not a pattern of secrets' names`},
		"outside of files": {
			[]string{"FILES", `"config/": {}`},
			`files["config/"]: "config/" is not valid: want the key of an object below files/`,
		},
		"up from files": {
			[]string{"FILES", `"files/../config/": {}`},
			`is not valid: want the key of an object below files/`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := sharedWith(c.with...)
			if c.want == "" {
				checkRoundTrip(t, parse(t, text))
				return
			}
			if got := problemsOf(t, text); !strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("got %s want %s, alone", got, c.want)
			}
		})
	}
}

// TestTenantsThroughTheAPI: a tenant does not learn the names of another one's templates and
// pools, whether it creates a group or has one that the config restricted later.
func TestTenantsThroughTheAPI(t *testing.T) {
	key := fleet.GroupKey{Tenant: "blue", Name: "jobs"}
	theirs, size := "theirs", 3
	change := config.Change{Template: &theirs, Size: &size, Create: true}
	for name, c := range map[string]struct {
		with []string
		want string // empty: it may
	}{
		"a template of default's": {nil, `template: no such template "theirs" (have: open)`},
		"a template for blue":     {[]string{"TEMPLATE", `"tenants": ["blue"],`}, ""},
		"its pool": {[]string{"TEMPLATE", `"tenants": ["blue"],`, "NAMED", "closed"},
			`subnet_pool: no such subnet pool "closed" (have: workers)`},
	} {
		t.Run(name, func(t *testing.T) {
			shard := parse(t, sharedWith(c.with...))
			_, err := shard.ChangeGroup(key, config.GroupRecord{}, change, config.Checks{})
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.As(err, new(config.Problems)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the change answers %v, want %s", err, c.want)
			}
			groups, _ := shard.Resolve(records(t, `{ "blue": { "jobs": { "template": "theirs", "size": 3 } } }`))
			if g := groups[key]; !strings.Contains(g.Disabled, c.want) || g.Removed || g.Size != 3 {
				t.Errorf("a group that was there before is %+v, want it held, because %s", g, c.want)
			}
		})
	}
	if err := parse(t, sharedWith()).CheckTenant("bleu"); err == nil || strings.Contains(err.Error(), `"red"`) {
		t.Errorf("a tenant that is not declared: %v, want an error that names no other", err)
	}
}

// TestDefaultsOfATenant: only the groups of the listed tenants have the defaults.
func TestDefaultsOfATenant(t *testing.T) {
	text := sharedWith(
		"DEFAULTS", `"tenants": ["default", "red"], "vars": { "token": "x" }, "args": { "key": "y" }, "userdata": { "content": "z" }`,
		"GROUPS", `"default": { "w": { "template": "open" } }, "blue": { "w": { "template": "open" } }, "red": { "w": { "template": "open" } }`)
	groups, _ := parse(t, text).Resolve(nil)
	for tenant, want := range map[string]bool{"default": true, "blue": false, "red": true} {
		g := groups[fleet.GroupKey{Tenant: tenant, Name: "w"}]
		if has := g.Vars["token"] != nil; has != want || (g.Args["key"] != nil) != want || (g.Userdata.Content != "") != want {
			t.Errorf("the group of %s has vars %v, args %v, userdata %q", tenant, g.Vars, g.Args, g.Userdata.Content)
		}
	}
}

// TestCheckFile: a file whose source a later config withdrew is refused with its name.
func TestCheckFile(t *testing.T) {
	shard := parse(t, sharedWith("SECRETS", `"b-*": { "tenants": ["blue"] }`, "FILES", `"files/b/": { "tenants": ["blue"] }`))
	for _, c := range []struct {
		tenant string
		file   fleet.File
		want   string // empty: it may
	}{
		{"blue", fleet.File{Kind: "secret", Source: "b-x"}, ""},
		{"blue", fleet.File{Kind: "secret", Source: "db"}, `source: the secret "db" is not for tenant "blue"`},
		{"default", fleet.File{Kind: "secret", Source: "db"}, ""},
		{"default", fleet.File{Kind: "secret", Source: "b-x"}, `source: the secret "b-x" is not for tenant "default": want secrets["b-*"]`},
		{"blue", fleet.File{Kind: "storage", Source: "files/b/c/d"}, ""},
		{"blue", fleet.File{Kind: "storage", Source: "files/bc"}, `source: the stored file "files/bc" is not for tenant "blue"`},
		{"blue", fleet.File{Kind: "certificate", Template: "node"}, `template: the certificate "node" is not for tenant "blue"`},
		{"blue", fleet.File{Kind: "string", Content: "x"}, ""},
	} {
		err := shard.CheckFile(c.tenant, c.file)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s and %+v: %v, want %q", c.tenant, c.file, err, c.want)
		}
	}
}
