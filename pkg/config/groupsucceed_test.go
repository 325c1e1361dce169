package config_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// succeed returns a group's record after next replaced the configs before, the most recent
// first. It checks that this is idempotent, also after storing the result.
func succeed(t *testing.T, key fleet.GroupKey, r config.GroupRecord, next *config.Shard, before ...*config.Shard) config.GroupRecord {
	t.Helper()
	input := encoded(t, r)
	after := succession(next, before...).Record(key, r)
	if encoded(t, r) != input {
		t.Error("the input changed")
	}
	if after.Stored() {
		for _, is := range []config.GroupRecord{after, stored(t, after)} {
			if again := succession(next, before...).Record(key, is); !again.Same(after) {
				t.Errorf("twice %s, once %s", encoded(t, again), encoded(t, after))
			}
		}
	}
	if after.Revision < r.Revision {
		t.Errorf("revision %d became %d", r.Revision, after.Revision)
	}
	return after
}

// without returns scene with another group in place of web.
func without(t *testing.T) *config.Shard {
	t.Helper()
	return parse(t, strings.Replace(scene, `"web": { "template": "knd", "size": 2,`, `"new": { "template": "knd", "size": 2,`, 1))
}

// TestOutliveStaticConfig: a changed group keeps its definition and hashes when static config
// drops it.
func TestOutliveStaticConfig(t *testing.T) {
	last, next := parse(t, scene), without(t)
	r := change(t, last, web, config.GroupRecord{}, config.Change{Size: ptr(6), Vars: map[string]any{"level": "entry"}})
	before := group(t, last, web, r)
	r = succeed(t, web, r, next, last)
	before.Static, before.StaticSize = false, 0
	if after := group(t, next, web, r); !reflect.DeepEqual(after, before) {
		t.Errorf("lives on as\n%+v\nwant\n%+v", after, before)
	}
	change(t, next, web, r, config.Change{Template: ptr("knd"), SubnetPool: ptr("workers"), Size: ptr(1)})
	still := change(t, last, bare, config.GroupRecord{}, config.Change{Size: ptr(1)})
	if r := succeed(t, bare, still, next, last); !reflect.DeepEqual(r, still) {
		t.Errorf("one that is still static became %+v", r)
	}
	empty := parse(t, strings.Replace(scene, `"bare": { "template": "knd"`, `"bare": { "template": "knd", "args": {}, "load_balancers": [],
		"vars": {}, "on_demand": { "namespaces": ["ci"], "instance_types": [], "max": 2 }`, 1))
	succeed(t, bare, still, parse(t, with(`"groups": {}`)), empty)
}

// TestOutliveTheMostRecent: of several configs the most recent that defined the group counts.
func TestOutliveTheMostRecent(t *testing.T) {
	ran := parse(t, scene)
	older := parse(t, strings.NewReplacer(
		`"size": 2, "instance_type": "large", "args": { "g": 1,`, `"size": 1, "instance_type": "tiny", "args": { "old": 1,`,
		`"vars": { "level": "group" }`, `"vars": { "level": "older", "more": true }, "rotation": { "max_surge": 5 }`).Replace(scene))
	r := record(t, `{ "leaving": ["`+string(idA)+`"], "revision": 4 }`)
	want := group(t, ran, web, r)
	want.Static, want.StaticSize = false, 0
	if got := group(t, without(t), web, succeed(t, web, r, without(t), ran, older)); !reflect.DeepEqual(got, want) {
		t.Errorf("lives on as\n%+v\nwant\n%+v", got, want)
	}
}

// TestBury: a group without a record that static config drops is emptied, unless static config
// defines it again.
func TestBury(t *testing.T) {
	last, next := parse(t, scene), without(t)
	for text, want := range map[string]string{
		``: `{"removed":true,"revision":1}`,
		`{ "deleted_at": "2026-03-01T12:00:00Z", "revision": 4 }`:          `{"removed":true,"revision":5}`,
		`{ "size": 3, "missing": true, "undefined": true, "revision": 4 }`: `{"removed":true,"revision":5}`,
		`{ "template": "knd", "size": 3, "removed": true, "revision": 4 }`: `{"template":"knd","size":3,"removed":true,"revision":4}`,
		`{ "size": 3, "missing": true, "revision": 4, "instance_type": "x" }`: `{"template":"knd","size":3,"instance_type":"x",` +
			`"args":{"d":{"from":"group"},"g":1},"vars":{"level":"group"},"load_balancers":["www"],"drain_timeout":"0s","revision":4}`,
	} {
		is := config.GroupRecord{}
		if text != "" {
			is = record(t, text)
		}
		r := succeed(t, web, is, next, last)
		if got := mustJSON(r.Entry); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
		if back := succeed(t, web, r, last, next); r.Removed && (back.Exists() || back.Revision != r.Revision+1) ||
			!r.Removed && mustJSON(back.Entry) != mustJSON(r.Entry) {
			t.Errorf("named again, %s became %s", encoded(t, r), encoded(t, back))
		}
	}
	mine := record(t, `{ "template": "knd", "size": 3, "revision": 4 }`)
	if r := mine.Bury(); !reflect.DeepEqual(r, mine) {
		t.Errorf("one that is defined became %+v", r)
	}
	bad := config.UnreadableGroup(config.Header{}, errors.New("damaged"))
	if r := bad.Bury(); !r.Same(bad) {
		t.Errorf("one that can't be read became %+v", r)
	}
}

// TestEndOfATenant: its groups are deleted with their definitions, including static ones.
func TestEndOfATenant(t *testing.T) {
	last := parse(t, scene)
	next := parse(t, strings.NewReplacer(`"tenants": { "prod": {} },`, ``, `"prod": { "web": { "template": "knc", "size": 0 } },`, ``,
		`"tenants": ["default", "prod"]`, `"tenants": ["default"]`).Replace(scene))
	r := succeed(t, prod, record(t, `{ "size": 3, "revision": 4 }`), next, last)
	if !r.Removed || r.Revision != 5 || r.Template == nil || *r.Template != "knc" || r.Size != nil {
		t.Errorf("it became %s", encoded(t, r))
	}
	if r := succeed(t, fleet.GroupKey{Tenant: "prod", Name: "none"}, config.GroupRecord{}, next, last); r.Stored() {
		t.Errorf("what is not there became %+v", r)
	}
}

// TestSucceedWhatNeverRan: which groups stay if the previous config was recorded but never ran.
func TestSucceedWhatNeverRan(t *testing.T) {
	group := func(s string) *config.Shard {
		return parse(t, with(`"tenants": { "prod": {} }, "groups": { "default": { "other": { "template": "knd" }`+s+` } }`))
	}
	ran, kept, next := group(`, "web": { "template": "knd", "args": { "from": "ran" } }`), group(``), group(``)
	withoutProd := parse(t, with(`"groups": { "default": { "other": { "template": "knd" } } }`))
	own := fleet.GroupKey{Tenant: "prod", Name: "own"}
	r := succession(next, ran, kept).Record(web, record(t, `{ "size": 5 }`))
	if r.Template == nil || *r.Template != "knd" || r.Args["from"] != "ran" || *r.Size != 5 {
		t.Errorf("web became %+v", r)
	}
	if r := succession(next, ran, kept).Record(web, config.GroupRecord{}); !r.Removed {
		t.Errorf("web, without a record, became %+v", r)
	}
	if r := succession(ran, next).Record(web, record(t, `{ "removed": true }`)); r.Exists() || !r.Stored() {
		t.Errorf("web, which is named again, became %+v", r)
	}
	is := record(t, `{ "template": "knd", "config_size": 1 }`)
	if r := succession(next, ran, kept).Record(own, is); !r.Same(is) {
		t.Errorf("own became %+v", r)
	}
	if r := succession(withoutProd, ran).Record(own, is); !r.Removed {
		t.Errorf("own of a tenant that is no more became %+v", r)
	}
	// An undeclared tenant is a mistake in the config, which is reported; nothing of it is
	// deleted.
	if r := succession(withoutProd, withoutProd).Record(own, is); !r.Same(is) {
		t.Errorf("own of an unknown tenant became %+v", r)
	}
}

// succession returns a static config that replaces others, the most recent first.
func succession(next *config.Shard, before ...*config.Shard) config.Succession {
	return config.Succession{Next: next, Before: before, Now: noon, Counted: true}
}
