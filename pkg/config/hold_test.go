package config_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
)

// holdShard has a static group, and a template that groups of their own name.
func holdShard(t *testing.T) *config.Shard {
	t.Helper()
	return parse(t, with(`"groups": { "default": { "web": { "template": "knd", "size": 1 } } }`))
}

// entriesOf reads a tenant's object with a rev and these groups; without a rev it has no
// header, as one that was written by hand.
func entriesOf(t *testing.T, rev int, groups string) *config.Entries {
	t.Helper()
	header := ""
	if rev > 0 {
		header = fmt.Sprintf(`"epoch": 1, "rev": %d, "writer": "w", `, rev)
	}
	e, err := config.ParseEntries([]byte("{" + header + `"groups": {` + groups + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// said are the entries as their object has them, each on one line, by name.
func said(t *testing.T, e *config.Entries) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, entry := range e.Dynamic("default").Groups["default"] {
		text, err := entry.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	return out
}

// TestHold: what is found, by what was known before and what lives. job is a group of its
// own, web one of the static config.
func TestHold(t *testing.T) {
	const (
		job     = `"job": { "template": "knd", "size": 9, "revision": 4 }`
		web     = `"web": { "size": 2, "revision": 5 }`
		removed = `"job": { "removed": true, "revision": 6 }`
		lost    = `"job": { "template": "knd", "size": 9, "missing": true, "revision": 8 }`
	)
	const (
		jobIs   = `{"template":"knd","size":9,"revision":4}`
		jobHeld = `{"template":"knd","size":9,"missing":true,"revision":8}`
		webIs   = `{"size":2,"revision":5}`
		webHeld = `{"size":2,"missing":true,"revision":8}`
	)
	lives := map[string]int{"job": 9, "web": 2}
	for name, c := range map[string]struct {
		rev    int    // of the object that is found; -1: there is none
		found  string // its groups
		known  string // what was known, at rev 7; "": nothing
		behind bool   // and by a cache, not by this leader
		living map[string]int
		beyond map[string]int
		want   map[string]string
	}{
		"the known one": {
			rev: 7, found: job + "," + web, known: job + "," + web, living: lives,
			want: map[string]string{"job": jobIs, "web": webIs},
		},
		"a newer one counts": {
			rev: 8, found: `"job": { "size": 1 }`, known: job, living: lives,
			want: map[string]string{"job": `{"size":1}`},
		},
		"an edit without a header": {
			rev: 0, found: `"job": { "size": 1 }`, known: job, living: lives,
			want: map[string]string{"job": `{"size":1}`},
		},

		"none is there": {
			rev: -1, known: job + "," + web, living: lives,
			want: map[string]string{"job": jobHeld, "web": webHeld},
		},
		"an entry lacks": {
			rev: 8, found: web, known: job + "," + web, living: lives,
			want: map[string]string{"job": `{"template":"knd","size":9,"missing":true,"revision":9}`, "web": webIs},
		},
		"an entry lacks, and nothing lives": {
			rev: 8, known: job,
			want: map[string]string{"job": `{"template":"knd","size":9,"missing":true,"revision":9}`},
		},
		"a tombstone is known": {
			rev: -1, known: removed, living: lives,
			want: map[string]string{"job": `{"removed":true,"revision":6}`},
		},
		"a tombstone of what is gone": {rev: -1, known: removed, want: map[string]string{}},
		"a tombstone is found, and is newer": {
			rev: 8, found: removed, known: job, living: lives,
			want: map[string]string{"job": `{"removed":true,"revision":6}`},
		},
		"a tombstone is found, and is older": {
			rev: 6, found: removed, known: job, living: lives,
			want: map[string]string{"job": jobHeld},
		},
		"an older one, smaller": {
			rev: 6, found: `"job": { "template": "knd", "size": 1, "revision": 2 }`, known: job, living: lives,
			want: map[string]string{"job": jobHeld},
		},
		"an older one, larger": {
			rev: 6, found: `"job": { "template": "knd", "size": 10, "revision": 2 }`, known: job, living: lives,
			want: map[string]string{"job": jobHeld},
		},
		"an older one that says the same": {
			rev: 6, found: `"job": { "template": "knd", "size": 9, "revision": 2 }`, known: job, living: lives,
			want: map[string]string{"job": jobIs},
		},
		"an older one before a deletion": {
			rev: 6, found: job, known: removed, living: lives,
			want: map[string]string{"job": `{"removed":true,"revision":6}`},
		},

		"held already": {rev: -1, known: lost, living: lives, want: map[string]string{"job": jobHeld}},
		"held, and put back": {
			rev: 3, found: job, known: lost, living: lives,
			want: map[string]string{"job": `{"template":"knd","size":9,"revision":9}`},
		},
		"held, and put back with a newer rev": {rev: 9, found: job, known: lost, living: lives, want: map[string]string{"job": jobIs}},
		"held, and another put back": {
			rev: 3, found: `"job": { "template": "knd", "size": 8 }`, known: lost, living: lives,
			want: map[string]string{"job": jobHeld},
		},
		"held, and put back as held before": {
			rev: 3, found: `"job": { "template": "knd", "size": 9, "missing": true, "revision": 3 }`, known: lost, living: lives,
			want: map[string]string{"job": jobHeld},
		},
		"held, and put back what is unread": {
			rev: 3, found: `"job": { "template": 7 }`, known: lost, living: lives,
			want: map[string]string{"job": jobHeld},
		},
		"held without a definition, put back": {
			rev: 3, found: job, known: `"job": { "size": 9, "missing": true, "undefined": true, "revision": 8 }`, living: lives,
			want: map[string]string{"job": `{"size":9,"missing":true,"undefined":true,"revision":8}`},
		},

		"a cache knows it": {
			rev: -1, known: job, behind: true, living: lives,
			want: map[string]string{"job": jobHeld},
		},
		"a cache knows it, and more live": {
			rev: -1, known: job, behind: true, living: map[string]int{"job": 12},
			want: map[string]string{"job": `{"template":"knd","size":12,"missing":true,"revision":8}`},
		},
		"a cache knows it, and nothing lives":    {rev: -1, known: job, behind: true, want: map[string]string{}},
		"a cache knows it, and a newer lacks it": {rev: 8, known: job, behind: true, want: map[string]string{}},
		"a cache knows the hold, and it is back": {
			rev: 3, found: job, known: lost, behind: true, living: lives,
			want: map[string]string{"job": `{"template":"knd","size":9,"revision":9}`},
		},
		"nothing is known, and there is no object": {
			rev: -1, living: lives,
			want: map[string]string{
				"job": `{"size":9,"missing":true,"undefined":true,"revision":1}`,
				"web": `{"size":2,"missing":true,"undefined":true,"revision":1}`,
			},
		},
		"nothing is known, and a rotation": {
			rev: -1, living: map[string]int{"web": 2}, beyond: map[string]int{"web": 1}, want: map[string]string{},
		},
		"nothing is known, and more than a rotation": {
			rev: -1, living: map[string]int{"web": 3}, beyond: map[string]int{"web": 1},
			want: map[string]string{"web": `{"size":3,"missing":true,"undefined":true,"revision":1}`},
		},
		"nothing is known, and fewer than static": {rev: -1, living: map[string]int{"web": 1}, want: map[string]string{}},
		"nothing is known, and an entry lacks": {
			rev: 8, living: lives,
			want: map[string]string{"job": `{"size":9,"missing":true,"undefined":true,"revision":9}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := entriesOf(t, max(c.rev, 0), c.found)
			h := config.Held{Tenant: "default", Absent: c.rev < 0, Certain: c.known != "" && !c.behind, Living: c.living, Beyond: c.beyond}
			if c.known != "" {
				h.Known = entriesOf(t, 7, c.known)
			}
			before := said(t, found)
			held, err := holdShard(t).Hold(found, h)
			if err != nil {
				t.Fatal(err)
			}
			if got := said(t, held); !maps.Equal(got, c.want) {
				t.Errorf("goes on with %v, want %v", got, c.want)
			}
			if !maps.Equal(said(t, found), before) {
				t.Error("what was found is changed")
			}
			if held.Header() != found.Header() {
				t.Errorf("header %+v, was %+v", held.Header(), found.Header())
			}
		})
	}
}

// TestHoldIsStable: what a leader goes on with, written and read again, is what it goes on
// with, so that a hold is written once.
func TestHoldIsStable(t *testing.T) {
	for _, known := range []string{`"job": { "template": "knd", "size": 9 }`, `"web": { "size": 2 }`, `"job": { "removed": true }`} {
		for _, found := range []string{"", known, strings.Replace(known, "size", "revision", 1)} {
			h := config.Held{Tenant: "default", Known: entriesOf(t, 7, known), Certain: true, Living: map[string]int{"job": 9, "web": 2}}
			held, err := holdShard(t).Hold(entriesOf(t, 3, found), h)
			if err != nil {
				t.Fatal(err)
			}
			body, err := held.Encode(config.Header{Epoch: 2, Rev: 8, Writer: "w"})
			if err != nil {
				t.Fatal(err)
			}
			written, err := config.ParseEntries(body)
			if err != nil {
				t.Fatal(err)
			}
			h.Known = held
			again, err := holdShard(t).Hold(written, h)
			if err != nil || !maps.Equal(said(t, again), said(t, held)) {
				t.Errorf("known %s, found %s: %v, %v, then %v", known, found, err, said(t, held), said(t, again))
			}
			if names := again.Names(); !slices.IsSorted(names) {
				t.Errorf("%v", names)
			}
		}
	}
}
