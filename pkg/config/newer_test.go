package config_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// newerGroups are dynamic groups as a version to come may write them.
const newerGroups = `{ "epoch": 1, "rev": 2, "writer": "w", "pace": { "per_hour": [2.50] }, // of the shard
	"groups": { "default": {
		"web": { "size": 3, "warm": { "spare": 1 }, "leaving": ["knd01hqz3yfzzfzz8zzzzzzzzzzzz"] },
		"own": { "template": "knd", "size": 2, "schedule": "0 9 * * 1" },
	} } }`

func newerDynamic(t *testing.T) config.Dynamic {
	t.Helper()
	d, err := config.ParseDynamic([]byte(newerGroups))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestNewerEntriesCount: a group is what the known fields say, and the others are
// named as without effect.
func TestNewerEntriesCount(t *testing.T) {
	groups, problems := parse(t, scene).Resolve(newerDynamic(t))
	if w, o := groups[web], groups[own]; w.Size != 3 || w.Disabled != "" || o.Size != 2 || o.Disabled != "" {
		t.Errorf("web is %+v, own is %+v", w, o)
	}
	var paths []string
	for _, p := range problems {
		if !strings.HasPrefix(p.Message, "ignored: unknown field") {
			t.Errorf("problem %v", p)
		}
		paths = append(paths, p.Path)
	}
	if want := []string{"groups.default.own.schedule", "groups.default.web.warm", "pace"}; !reflect.DeepEqual(paths, want) {
		t.Errorf("problems are of %v, want %v", paths, want)
	}
}

// TestNewerFieldsOutliveEdits: every edit keeps what it does not know, until the
// entry itself is gone.
func TestNewerFieldsOutliveEdits(t *testing.T) {
	shard := parse(t, scene)
	d := newerDynamic(t)
	holds := func(after string, d config.Dynamic, want ...string) {
		t.Helper()
		text := encoded(t, d)
		for _, field := range []string{`"pace"`, `"warm"`, `"schedule"`} {
			wanted := 0
			for _, w := range want {
				if strings.Contains(field, w) {
					wanted = 1
				}
			}
			if got := strings.Count(text, field); got != wanted {
				t.Errorf("after %s %s is there %d times, want %d:\n%s", after, field, got, wanted, text)
			}
		}
		checkKept(t, d)
	}
	holds("nothing", d, "pace", "warm", "schedule")
	d = upsert(t, shard, d, web, config.Change{Size: ptr(4), Vars: map[string]any{"a": "b"}})
	d = upsert(t, shard, d, own, config.Change{InstanceType: ptr("huge")})
	holds("edits", d, "pace", "warm", "schedule")
	d = d.Settle(web, []fleet.InstanceID{"knd01hqz3yfzzfzz8zzzzzzzzzzzz"})
	d = d.Remove(own)
	holds("removal", d, "pace", "warm", "schedule")
	holds("adoption", d.Adopt(shard, parse(t, with(`"groups": {}`))), "pace", "warm", "schedule")
	d = d.Forget(own)
	holds("the end of a group", d, "pace", "warm")
	if !strings.Contains(strings.Join(strings.Fields(encoded(t, d)), ""), `"pace":{"per_hour":[2.50]}`) {
		t.Errorf("pace has changed:\n%s", encoded(t, d))
	}
}

// TestAcceptedConfigMayBeNewer: what a newer version accepted runs as far as it is
// known; what a person writes is held to the letter.
func TestAcceptedConfigMayBeNewer(t *testing.T) {
	plain := with(`"groups": { "default": { "web": { "template": "knd", "size": 2 } } }`)
	text := strings.Replace(
		with(`"ledger": { "codec": "x" }, "groups": { "default": { "web": { "template": "knd", "size": 2, "warm": [1] } } }`),
		`"server": {`, `"server": { "tracing": { "addr": null },`, 1)
	if _, err := config.Parse([]byte(text)); err == nil || strings.Count(err.Error(), "unknown field") != 3 {
		t.Errorf("config/ gives %v, want three unknown fields", err)
	}
	shard, err := config.ParseAccepted([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := parse(t, plain); !reflect.DeepEqual(shard, want) {
		t.Errorf("read\n%+v, want\n%+v", shard, want)
	}
	for _, wrong := range []string{
		strings.Replace(plain, `"size": 2`, `"size": -2`, 1),
		strings.Replace(plain, `"size": 2`, `"Size": 2`, 1),
		plain + "}", ``,
	} {
		if _, err := config.ParseAccepted([]byte(wrong)); err == nil {
			t.Errorf("accepted: %s", wrong)
		}
	}
}
