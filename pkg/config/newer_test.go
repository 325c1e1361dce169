package config_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// newerWeb and newerOwn are records of groups as a later version may write them.
const (
	newerWeb = `{ "epoch": 1, "rev": 2, "writer": "w", "size": 3, "warm": { "spare": [2.50] }, // of the group
	"leaving": ["knd01hqz3yfzzfzz8zzzzzzzzzzzz"] }`
	newerOwn = `{ "template": "knd", "size": 2, "schedule": "0 9 * * 1" }`
)

// TestNewerRecordsCount: the known fields define the group; unknown ones are reported and
// ignored.
func TestNewerRecordsCount(t *testing.T) {
	groups, problems := parse(t, scene).Resolve(config.GroupRecords{web: record(t, newerWeb), own: record(t, newerOwn)})
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
	if want := []string{"groups.default.own.schedule", "groups.default.web.warm"}; !reflect.DeepEqual(paths, want) {
		t.Errorf("problems are of %v, want %v", paths, want)
	}
}

// TestNewerFieldsOutliveEdits: every edit keeps unknown fields, and so does a tombstone.
func TestNewerFieldsOutliveEdits(t *testing.T) {
	s := parse(t, scene)
	holds := func(after string, r config.GroupRecord, want string) {
		t.Helper()
		if text := encoded(t, r); strings.Count(text, want) != 1 || !stored(t, r).Same(r) {
			t.Errorf("after %s there is\n%s\nwant %s", after, text, want)
		}
	}
	const warm, schedule = `"warm":{"spare":[2.50]}`, `"schedule":"0 9 * * 1"`
	w, o := record(t, newerWeb), record(t, newerOwn)
	holds("nothing", w, warm)
	w = change(t, s, web, w, config.Change{Size: ptr(4), Vars: map[string]any{"a": "b"}})
	holds("an edit", w, warm)
	w = w.ClearLeaving([]fleet.InstanceID{"knd01hqz3yfzzfzz8zzzzzzzzzzzz"})
	holds("a settlement", w, warm)
	holds("adoption", succeed(t, web, w, parse(t, with(`"groups": {}`)), s), warm)
	held, _ := s.HoldGroup(web, config.GroupRecord{}, config.History{Known: w, Certain: true, Living: 4, Lives: true})
	holds("a loss", held, warm)
	o = change(t, s, own, o, config.Change{InstanceType: ptr("huge")})
	holds("an edit", o, schedule)
	o = o.Remove()
	holds("a removal", o, schedule)
	holds("the end of a group", o.Forget(noon), schedule)
}

// TestAcceptedConfigMayBeNewer: a config that a newer version accepted runs with its known
// fields; a new text is parsed strictly.
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
