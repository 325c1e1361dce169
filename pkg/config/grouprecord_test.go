package config_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/config"
	_ "github.com/nstance/nstance/pkg/rapidseed"
)

// TestDecodeGroup: the content of an object, also of one written externally.
func TestDecodeGroup(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:            `{"epoch":0,"rev":0,"writer":""}`,
		`{ "size": 0 }`: `{"epoch":0,"rev":0,"writer":"","size":0}`,
		"// by hand\n{ \"size\": 2, /* of them */ \"subnet_pool\": \"a\", }": `{"epoch":0,"rev":0,"writer":"","size":2,"subnet_pool":"a"}`,
		`{ "writer": "w", "rev": 7, "epoch": 3, "revision": 9007199254740992, "removed": true }`://
		`{"epoch":3,"rev":7,"writer":"w","removed":true,"revision":9007199254740992}`,
		`{ "rev": 18446744073709551615 } // all`: `{"epoch":0,"rev":18446744073709551615,"writer":""}`,
		`{ "later": {"a": [2.50]}, "size": 2, "kept": { "kind": "knd", "arch": "a", "newer": 1 } }`://
		`{"epoch":0,"rev":0,"writer":"","size":2,"kept":{"kind":"knd","arch":"a","newer":1},"later":{"a":[2.50]}}`,
		`{ "rev": 7, "deleted_at": "2026-03-01T13:00:00+01:00", "revision": 4, "size": 2, "later": 1 }`://
		`{"epoch":0,"rev":7,"writer":"","deleted_at":"2026-03-01T13:00:00+01:00","revision":4,"later":1}`,
	} {
		r := record(t, text)
		if got := encoded(t, r); got != want {
			t.Errorf("%s is written as %s, want %s", text, got, want)
		}
		if !reflect.DeepEqual(stored(t, r), r) {
			t.Errorf("%s, read again, is %+v, and was %+v", text, stored(t, r), r)
		}
		if r.Exists() != (r.DeletedAt == nil) || !r.Stored() || r.Unreadable() {
			t.Errorf("%s: exists %v, stored %v, unreadable %v", text, r.Exists(), r.Stored(), r.Unreadable())
		}
	}
	if r := (config.GroupRecord{}); r.Exists() || r.Stored() || r.Unreadable() {
		t.Error("there is a record where there is no object")
	}
}

func TestDecodeGroupErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                                    "line 2, column 1: parsing value: unexpected EOF",
		`[]`:                                  "got an array: want an object",
		`null`:                                "null is not a value here",
		"{\"size\": 1, \"\xff\": 2}":          "line 1, column 14: not valid UTF-8",
		`{"rev": -1}`:                         "rev: got the number -1: want a whole number, not negative",
		`{"rev": 1.5}`:                        "rev: got the number 1.5: want a whole number, not negative",
		`{"Size": 1}`:                         "Size: unknown field (have: aborted, args, config_size, deleted_at, drain_timeout, ",
		`{"size": 1, "size": 2}`:              "size: given more than once: again at line 1, column 13",
		`{"size": -1}`:                        "size: -1 is outside the limits: want 0 to 10000",
		`{"config_size": 10001}`:              "config_size: 10001 is outside the limits: want 0 to 10000",
		`{"revision": 9007199254740993}`:      "revision: 9007199254740993: want at most 9007199254740992",
		`{"leaving": ["me"]}`:                 `leaving[0]: "me" is not an instance id`,
		`{"deleted_at": 5}`:                   "deleted_at: got the number 5: want a string: a time such as 2006-01-02T15:04:05Z",
		`{"deleted_at": "yesterday"}`:         `deleted_at: "yesterday": want a time such as 2006-01-02T15:04:05Z`,
		strings.Repeat(" ", config.MaxSize+1): "the text has ",
	} {
		_, err := config.DecodeGroup([]byte(text))
		var problems config.Problems
		if !errors.As(err, &problems) || !strings.HasPrefix(problems[0].String(), want) {
			t.Errorf("%.80s gives %v, want %s", text, err, want)
		}
	}
	if _, err := config.DecodeGroup([]byte(`{"size": "two", "rev": -1}`)); strings.Count(err.Error(), "got ") != 2 {
		t.Errorf("two mistakes give %v", err)
	}
}

// TestEncodeGroupHasALimit: a record that is too large to be read again is not written.
func TestEncodeGroupHasALimit(t *testing.T) {
	vars := func(bytes int) config.Change {
		return config.Change{Template: ptr("knd"), Vars: map[string]any{"a": strings.Repeat("x", bytes)}}
	}
	s := parse(t, scene)
	if _, err := change(t, s, own, config.GroupRecord{}, vars(1000)).Encode(); err != nil {
		t.Error(err)
	}
	r, err := s.ChangeGroup(own, config.GroupRecord{}, vars(config.MaxSize), config.Checks{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Encode(); !errors.Is(err, config.ErrTooLarge) || !strings.Contains(err.Error(), "are allowed: remove vars") {
		t.Errorf("Encode gives %v", err)
	}
}

func TestUnreadableGroup(t *testing.T) {
	s := parse(t, scene)
	r := config.UnreadableGroup(config.Header{Rev: 3}, errors.New("damaged"))
	if !r.Exists() || !r.Stored() || !r.Unreadable() || r.Rev != 3 {
		t.Errorf("it is %+v", r)
	}
	if g, _, problems := s.ResolveGroup(web, r); len(problems) != 1 || g.Disabled != "damaged" || g.Size != 2 || !g.FilesHeld {
		t.Errorf("the group is %+v, %v", g, problems)
	}
	empty := record(t, `{}`)
	if r.Same(empty) || empty.Same(r) || !r.Same(config.UnreadableGroup(config.Header{}, errors.New("damaged"))) {
		t.Error("one that can't be read is taken for an empty one")
	}
	if next := succession(s, s).Record(web, r); !next.Same(r) {
		t.Errorf("with the next config it is %+v", next)
	}
	if kept := succession(s, s).KeepTemplate(own, r); !kept.Same(r) {
		t.Errorf("it keeps %+v", kept)
	}
	if reset, err := s.ResetGroup(web, r, config.By{}, noon); err != nil || reset.Exists() || reset.Unreadable() {
		t.Errorf("reset, it is %+v, %v", reset, err)
	}
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{ "size": 2 }`, `{ "rev": 3, "size": 2 }`, true},
		{`{ "size": 2 }`, `{ "size": 3 }`, false},
		{`{ "size": 2 }`, `{ "size": 2, "revision": 1 }`, false},
		{`{ "size": 2 }`, `{ "size": 2, "later": 1 }`, false},
		{`{ "size": 2, "later": 2 }`, `{ "size": 2, "later": 1 }`, false},
		{`{ "vars": {}, "load_balancers": [] }`, `{}`, true},
		{`{ "deleted_at": "2026-03-01T12:00:00Z" }`, `{ "deleted_at": "2026-04-01T12:00:00Z" }`, true},
		{`{ "deleted_at": "2026-03-01T12:00:00Z" }`, `{}`, false},
	} {
		if a, b := record(t, c.a), record(t, c.b); a.Same(b) != c.want || b.Same(a) != c.want {
			t.Errorf("%s and %s are the same: %v", c.a, c.b, !c.want)
		}
	}
	if (config.GroupRecord{}).Same(record(t, `{}`)) {
		t.Error("no record is taken for an empty one")
	}
}

// Any record is unchanged after encoding and decoding.
func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := anyRecord(t, rt, "record")
		if again := stored(t, r); !reflect.DeepEqual(again, r) && r.Stored() {
			rt.Fatalf("read again as %+v, was %+v", again, r)
		}
	})
}

// anyRecord draws a record as leaders write them, of a dynamic or a static group.
func anyRecord(t *testing.T, rt *rapid.T, label string) config.GroupRecord {
	draw := func(text string) string { return rapid.SampledFrom([]string{"", text}).Draw(rt, label+text) }
	number := func(name string) string {
		return `"` + name + `": ` + rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(rt, label+name) + `, `
	}
	header := rapid.SampledFrom([]string{"", `"epoch": 1, "writer": "w", ` + number("rev")}).Draw(rt, label+" header")
	switch rapid.IntRange(0, 6).Draw(rt, label) {
	case 0:
		return config.GroupRecord{}
	case 1:
		return record(t, `{ `+header+number("revision")+draw(`"config_size": 3, `)+`"deleted_at": "2026-03-01T12:00:00Z" }`)
	case 2:
		return record(t, `{ `+header+number("revision")+`"template": "knd", "removed": true }`)
	case 3:
		return record(t, `{ `+header+number("revision")+number("size")+`"missing": true`+draw(`, "undefined": true`)+` }`)
	case 4:
		return record(t, `{ `+header+number("revision")+draw(`"config_size": 3, `)+`"missing": true }`)
	}
	size := rapid.SampledFrom([]string{"", number("size"), number("config_size")}).Draw(rt, label+" says")
	return record(t, `{ `+header+draw(`"template": "knd", `)+draw(number("revision"))+size+
		draw(`"vars": { "a": [1, "x"] }, `)+draw(`"leaving": ["`+string(idA)+`"], `)+draw(`"later": { "x": 1.50 }, `)+`}`)
}
