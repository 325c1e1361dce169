package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// paced returns minimal with more of the server, of the template, and a group of it.
func paced(server, template, group string) string {
	text := strings.Replace(minimal, `"provider": { "kind": "fake" },`, `"provider": { "kind": "fake" }, `+server, 1)
	text = strings.Replace(text, `"subnet_pool": "workers" }`, `"subnet_pool": "workers"`+template+` }`, 1)
	return strings.TrimSuffix(text, "}") + `"groups": { "default": { "web": { "template": "knd"` + group + ` } } } }`
}

func TestPacing(t *testing.T) {
	s := parse(t, minimal).Server
	if s.Rotation.MaxSurge != (fleet.Surge{Percent: 10}) ||
		s.CreateBackoff.Settle.Std() != 2*time.Minute || s.CreateBackoff.Max.Std() != 5*time.Minute {
		t.Errorf("unless written: %+v, %+v", s.Rotation, s.CreateBackoff)
	}
	s = parse(t, paced(`"create_backoff": { "settle": "0s", "max": "1s" }, "rotation": { "max_surge": 7 },`, "", "")).Server
	if s.Rotation.MaxSurge != (fleet.Surge{Count: 7}) || s.CreateBackoff.Settle != 0 || s.CreateBackoff.Max.Std() != time.Second {
		t.Errorf("as written: %+v, %+v", s.Rotation, s.CreateBackoff)
	}
}

// TestMaxSurgeOfAGroup: its own, else its template's, else the default.
func TestMaxSurgeOfAGroup(t *testing.T) {
	for _, c := range []struct {
		template, group string
		want            fleet.Surge
	}{
		{"", "", fleet.Surge{}},
		{"", `, "rotation": { "max_surge": "3" }`, fleet.Surge{Count: 3}},
		{"", `, "rotation": { "max_surge": 3 }`, fleet.Surge{Count: 3}},
		{`, "rotation": { "max_surge": "5%" }`, "", fleet.Surge{Percent: 5}},
		{`, "rotation": { "max_surge": "5%" }`, `, "rotation": { "max_surge": "100%" }`, fleet.Surge{Percent: 100}},
		{`, "rotation": { "max_surge": 10000 }`, `, "rotation": { "max_surge": 1 }`, fleet.Surge{Count: 1}},
	} {
		groups, problems := parse(t, paced("", c.template, c.group)).Resolve(nil)
		if got := groups[web].MaxSurge; len(problems) > 0 || got.Of(1000) != c.want.Of(1000) || got.Of(10) != c.want.Of(10) {
			t.Errorf("template%s, group%s: %v, %v; want %v", c.template, c.group, got, problems, c.want)
		}
	}
}

// TestMaxSurgeBuildsNothingAnew: a changed max_surge does not rotate a group.
func TestMaxSurgeBuildsNothingAnew(t *testing.T) {
	hashes := func(text string) fleet.Hashes {
		groups, _ := parse(t, text).Resolve(nil)
		return groups[web].Hashes
	}
	if a, b := hashes(paced("", "", "")), hashes(paced("", "", `, "rotation": { "max_surge": 3 }`)); a != b || a.Infra == "" {
		t.Errorf("hashes %+v and %+v", a, b)
	}
}

func TestPacingRefuses(t *testing.T) {
	const want = `want a count from 1 to 10000, or a share of the size from "1%" to "100%"`
	for _, c := range []struct{ server, template, group, want string }{
		{`"rotation": { "max_surge": "0" },`, "", "", `server.rotation.max_surge: "0": ` + want},
		{`"rotation": { "max_surge": 0 },`, "", "", `server.rotation.max_surge: "0": ` + want},
		{`"rotation": { "max_surge": -1 },`, "", "", `server.rotation.max_surge: "-1": ` + want},
		{`"rotation": { "max_surge": 1.5 },`, "", "", `server.rotation.max_surge: "1.5": ` + want},
		{`"rotation": { "max_surge": "101%" },`, "", "", `server.rotation.max_surge: "101%": ` + want},
		{`"rotation": { "max_surge": true },`, "", "",
			`server.rotation.max_surge: got true: want a string: ` + strings.TrimPrefix(want, "want ")},
		{`"rotation": { "max_surges": 1 },`, "", "", `server.rotation.max_surges: unknown field (have: max_surge)`},
		{"", `, "rotation": { "max_surge": "all" }`, "", `templates.knd.rotation.max_surge: "all": ` + want},
		{"", "", `, "rotation": { "max_surge": 10001 }`, `groups.default.web.rotation.max_surge: "10001": ` + want},
		{`"create_backoff": { "settle": "-1s" },`, "", "", "server.create_backoff.settle: "},
		{`"create_backoff": { "settle": "2h" },`, "", "", "server.create_backoff.settle: 2h is outside the limits: want 0s to 1h"},
		{`"create_backoff": { "max": "0s" },`, "", "", "server.create_backoff.max: 0s is outside the limits: want 1s to 1h"},
		{`"create_backoff": { "max": 5 },`, "", "", "server.create_backoff.max: got the number 5: want "},
	} {
		if got := problemsOf(t, paced(c.server, c.template, c.group)); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s%s%s: %q, want %q", c.server, c.template, c.group, got, c.want)
		}
	}
}

// TestMaxSurgeOfARecord: a record's max_surge applies, also to a static group; a group that
// outlives its static definition keeps its own, unless the record has another.
func TestMaxSurgeOfARecord(t *testing.T) {
	const static = `"web": { "template": "knd", "size": 2,`
	text := strings.Replace(scene, static, static+` "rotation": { "max_surge": 2 },`, 1)
	s := parse(t, text)
	small, half := record(t, `{ "size": 1 }`), record(t, `{ "template": "knd", "rotation": { "max_surge": "50%" } }`)
	other := record(t, `{ "size": 1, "rotation": { "max_surge": "9" } }`)
	if g := group(t, s, web, small); g.MaxSurge != (fleet.Surge{Count: 2}) {
		t.Errorf("a static group has %v", g.MaxSurge)
	}
	if g := group(t, s, web, other); g.MaxSurge != (fleet.Surge{Count: 9}) {
		t.Errorf("a static group that is said to have 9 has %v", g.MaxSurge)
	}
	if g := group(t, s, own, half); g.MaxSurge != (fleet.Surge{Percent: 50}) {
		t.Errorf("a group of its own has %v", g.MaxSurge)
	}
	next := parse(t, strings.Replace(text, static, `"new": { "template": "knd", "size": 2,`, 1))
	if g := group(t, next, web, succeed(t, web, small, next, s)); g.MaxSurge != (fleet.Surge{Count: 2}) || g.Static {
		t.Errorf("one that was static has %v", g.MaxSurge)
	}
	if g := group(t, next, web, succeed(t, web, other, next, s)); g.MaxSurge != (fleet.Surge{Count: 9}) || g.Static {
		t.Errorf("one that was static, with 9, has %v", g.MaxSurge)
	}
}

// TestChangeOfMaxSurge: it applies until it is reset, for static and dynamic groups, and changes
// nothing else.
func TestChangeOfMaxSurge(t *testing.T) {
	s := parse(t, strings.Replace(scene, `"web": { "template": "knd", "size": 2,`,
		`"web": { "template": "knd", "size": 2, "rotation": { "max_surge": 2 },`, 1))
	made := change(t, s, own, config.GroupRecord{}, config.Change{Template: ptr("knd")})
	for key, r := range map[fleet.GroupKey]config.GroupRecord{web: {}, own: made} {
		before := group(t, s, key, r)
		changed := change(t, s, key, r, config.Change{MaxSurge: &fleet.Surge{Percent: 25}})
		changed = change(t, s, key, changed, config.Change{Size: ptr(7)})
		after := group(t, s, key, changed)
		if after.MaxSurge != (fleet.Surge{Percent: 25}) || after.Hashes != before.Hashes || after.Disabled != "" {
			t.Errorf("%s is %+v", key, after)
		}
		back := group(t, s, key, change(t, s, key, changed, config.Change{MaxSurge: &fleet.Surge{}}))
		if back.MaxSurge != before.MaxSurge || back.Size != 7 || back.Revision <= after.Revision {
			t.Errorf("%s, taken back, is %+v", key, back)
		}
	}
}
