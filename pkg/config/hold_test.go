package config_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	_ "github.com/nstance/nstance/pkg/rapidseed"
)

var job = fleet.GroupKey{Tenant: "default", Name: "job"}

// holdShard has a static group, web, and a template for dynamic groups.
func holdShard(t testing.TB) *config.Shard {
	t.Helper()
	return parse(t, with(`"groups": { "default": { "web": { "template": "knd", "size": 1 } } }`))
}

// at returns a record with a rev; 0: without a header, as if written externally.
func at(t testing.TB, rev int, text string) config.GroupRecord {
	t.Helper()
	if rev > 0 {
		text = strings.Replace(text, "{", fmt.Sprintf(`{ "epoch": 1, "rev": %d, "writer": "w",`, rev), 1)
	}
	return record(t, text)
}

const (
	jobIs    = `{"template":"knd","size":9,"revision":4}`
	jobHeld  = `{"template":"knd","size":9,"missing":true,"revision":5}`
	webIs    = `{"size":2,"revision":5}`
	aborted  = `"aborted":{"refused":"0123456789abcdef","instead":{"template":"knd","kind":"knd","arch":"amd64","subnet_pool":"workers"}}`
	removed  = `{"template":"knd","removed":true,"revision":6}`
	gone     = `{"deleted_at":"2026-03-01T12:00:00Z","config_size":1,"revision":6}`
	lost     = `{"template":"knd","size":9,"missing":true,"revision":8}`
	nothing  = ""
	nineLive = `{"size":9,"missing":true,"undefined":true,"revision":%d}`
)

// holdCase is one call of HoldGroup.
type holdCase struct {
	rev    int    // of the object that is found
	found  string // the stored record; "": none
	known  string // the known record, at rev 7; "": none
	behind bool   // and by a cache, not by this leader
	lives  int    // how many instances do
	by     uint64 // the highest revision that created one
	want   string // the effective record; "": none
	holds  bool   // the store lacks that
}

func (c holdCase) history(t testing.TB) config.History {
	h := config.History{Living: c.lives, Lives: c.lives > 0, Revision: c.by, Certain: c.known != "" && !c.behind}
	if c.known != "" {
		h.Known = at(t, 7, c.known)
	}
	return h
}

func (c holdCase) check(t *testing.T, key fleet.GroupKey) {
	t.Helper()
	s, is, h := holdShard(t), config.GroupRecord{}, c.history(t)
	if c.found != "" {
		is = at(t, c.rev, c.found)
	}
	input := encoded(t, is) + encoded(t, h.Known)
	goesOn, differs := s.HoldGroup(key, is, h)
	if got := saidBy(goesOn); got != c.want || differs != c.holds {
		t.Errorf("goes on with %s, differs: %v; want %s, %v", got, differs, c.want, c.holds)
	}
	if encoded(t, is)+encoded(t, h.Known) != input {
		t.Error("the input is changed")
	}
}

// saidBy returns a record without its header.
func saidBy(r config.GroupRecord) string {
	switch {
	case !r.Stored():
		return nothing
	case !r.Exists():
		tomb := fmt.Sprintf(`{"deleted_at":"2026-03-01T12:00:00Z","config_size":%s,`, mustJSON(r.ConfigSize))
		return strings.Replace(mustJSON(r.Entry), "{", tomb, 1)
	}
	return mustJSON(r.Entry)
}

// TestHoldGroupOfItsOwn: a dynamic group, by stored record, known record and live instances.
func TestHoldGroupOfItsOwn(t *testing.T) {
	const small, wish = `{"template":"knd","size":1,"revision":4}`, `{"template":"knd","size":9,"revision":2}`
	undefined := func(revision int) string { return fmt.Sprintf(nineLive, revision) }
	for name, c := range map[string]holdCase{
		"the known one":                            {rev: 7, found: jobIs, known: jobIs, lives: 9, want: jobIs},
		"a newer one counts":                       {rev: 8, found: small, known: jobIs, lives: 9, want: small},
		"of a rev that came twice":                 {rev: 7, found: small, known: jobIs, lives: 9, want: small},
		"none is there":                            {known: jobIs, lives: 9, want: jobHeld, holds: true},
		"none, and nothing lives":                  {known: jobIs, want: jobHeld, holds: true},
		"a removal is known":                       {known: removed, lives: 9, want: removed, holds: true},
		"a removal of what is gone":                {known: removed, want: nothing},
		"a removal is found, and is newer":         {rev: 8, found: removed, known: jobIs, lives: 9, want: removed},
		"a removal is found, and is older":         {rev: 6, found: removed, known: lost, lives: 9, want: lost, holds: true},
		"a tombstone is found, and is newer":       {rev: 8, found: gone, known: jobIs, want: gone},
		"a tombstone is found, and is older":       {rev: 6, found: gone, known: lost, want: lost, holds: true},
		"a tombstone is found, and more live":      {rev: 8, found: gone, known: removed, lives: 9, want: undefined(7), holds: true},
		"a tombstone was known, and none is there": {known: gone, want: nothing},
		"a tombstone was known, and some live":     {known: gone, lives: 9, want: undefined(7), holds: true},
		"an older one, smaller":                    {rev: 6, found: small, known: jobIs, lives: 9, want: jobHeld, holds: true},
		"an older one, larger": {
			rev: 6, found: `{"template":"knd","size":10,"revision":2}`, known: jobIs, lives: 9, want: jobHeld, holds: true,
		},
		"an older one, of the same text":  {rev: 6, found: jobIs, known: jobIs, lives: 9, want: jobIs},
		"an older one that says the same": {rev: 6, found: wish, known: jobIs, lives: 9, want: jobIs, holds: true},
		"an older one before a deletion":  {rev: 6, found: jobIs, known: removed, lives: 9, want: removed, holds: true},
		"an older one before what is forgotten": {
			rev: 6, found: jobIs, known: gone, want: `{"template":"knd","size":9,"revision":7}`, holds: true,
		},

		"held already":     {known: lost, lives: 9, want: lost, holds: true},
		"held, and stored": {rev: 8, found: lost, known: lost, lives: 9, want: lost},
		"held, and put back": {
			rev: 3, found: jobIs, known: lost, lives: 9, want: `{"template":"knd","size":9,"revision":9}`, holds: true,
		},
		"held and managed since, and put back": {
			rev: 3, found: jobIs, known: `{"template":"knd","size":9,"missing":true,"manager":"m","revision":8}`, lives: 9,
			want: `{"template":"knd","size":9,"manager":"m","revision":9}`, holds: true,
		},
		"held, and another put back": {rev: 3, found: small, known: lost, lives: 9, want: lost, holds: true},
		"held, and put back as held before": {
			rev: 3, found: `{"template":"knd","size":9,"missing":true,"revision":3}`, known: lost, lives: 9, want: lost, holds: true,
		},
		"held without a definition, put back": {rev: 3, found: jobIs, known: undefined(8), lives: 9, want: undefined(8), holds: true},

		"a cache knows it": {known: jobIs, behind: true, lives: 9, want: jobHeld, holds: true},
		"a cache knows it, and more live": {
			known: jobIs, behind: true, lives: 12, want: `{"template":"knd","size":12,"missing":true,"revision":5}`, holds: true,
		},
		"a cache knows it, and nothing lives":    {known: jobIs, behind: true, want: nothing},
		"a cache knows it, and a newer says not": {rev: 8, found: gone, known: jobIs, behind: true, want: gone},
		"a cache knows the hold, and it is back": {
			rev: 3, found: jobIs, known: lost, behind: true, lives: 9, want: `{"template":"knd","size":9,"revision":9}`, holds: true,
		},
		"nothing is known": {lives: 9, want: undefined(1), holds: true},
		"nothing is known, and none is there that made some": {lives: 9, by: 4, want: undefined(5), holds: true},
		"nothing is known, and nothing lives":                {want: nothing},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, job) })
	}
}

// TestHoldStaticGroup: a lost override holds its group; without an override, or after its reset,
// nothing does.
func TestHoldStaticGroup(t *testing.T) {
	const held, twoLive = `{"size":2,"missing":true,"revision":6}`, `{"size":2,"missing":true,"undefined":true,"revision":%d}`
	undefined := func(revision int) string { return fmt.Sprintf(twoLive, revision) }
	for name, c := range map[string]holdCase{
		"the known one": {rev: 7, found: webIs, known: webIs, lives: 2, want: webIs},
		"none is there, which only managed": {
			known: `{"manager":"m","revision":5}`, lives: 2, want: `{"manager":"m","missing":true,"revision":6}`, holds: true,
		},
		"none is there":                       {known: webIs, lives: 2, want: held, holds: true},
		"a cache knows it":                    {known: webIs, behind: true, lives: 2, want: held, holds: true},
		"a cache knows it, and nothing lives": {known: webIs, behind: true, want: nothing},
		"one without a say was known":         {known: `{"config_size":1,"revision":5}`, lives: 2, by: 5, want: nothing},
		"one of before it was static":         {known: removed, lives: 2, by: 6, want: nothing},
		"one of before it was static, sized":  {known: `{"size":2,"removed":true,"revision":6}`, lives: 2, by: 6, want: nothing},
		"it was taken back":                   {rev: 8, found: gone, known: webIs, lives: 2, by: 5, want: gone},
		"it was taken back before": {
			rev: 6, found: gone, known: `{"size":2,"revision":7}`, lives: 2, want: `{"size":2,"missing":true,"revision":8}`, holds: true,
		},
		"it was taken back, and nothing knows": {rev: 8, found: gone, lives: 2, by: 6, want: gone},
		"it was taken back before instances":   {rev: 8, found: gone, lives: 2, by: 7, want: undefined(8), holds: true},
		"that it was taken back was known":     {known: gone, behind: true, lives: 2, by: 6, want: nothing},
		"and it was given again":               {known: gone, behind: true, lives: 2, by: 7, want: undefined(8), holds: true},
		"one without a say, and given again":   {known: `{"revision":5}`, behind: true, lives: 2, by: 7, want: undefined(8), holds: true},
		"one of before an abort": {
			rev: 3, found: webIs, known: `{"size":2,` + aborted + `,"revision":6}`, lives: 2, by: 5,
			want: `{"size":2,` + aborted + `,"revision":6}`, holds: true,
		},
		"nothing is known, nor was":            {lives: 1, want: nothing},
		"nothing is known, and too many live":  {lives: 2, want: undefined(1), holds: true},
		"it was taken back, and too many live": {rev: 8, found: gone, lives: 3, by: 6, want: gone},
		"nothing is known, but was":            {lives: 2, by: 3, want: undefined(4), holds: true},
		"a removal of before it was static":    {rev: 8, found: removed, lives: 2, by: 6, want: removed},
		"a removal of before its override":     {rev: 8, found: removed, lives: 2, by: 7, want: undefined(8), holds: true},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, web) })
	}
}

// TestHoldBehindInstances: a record older than the one that created live instances counts as
// lost, even if the cache knows no later one; neither its size nor a removal takes effect.
func TestHoldBehindInstances(t *testing.T) {
	const (
		nine   = `{"template":"knd","size":9,"missing":true,"revision":8}`
		ten    = `{"template":"knd","size":10,"missing":true,"revision":8}`
		small  = `{"template":"knd","size":1,"revision":4}`
		byHand = `{"template":"knd","size":1}`
	)
	undefined := fmt.Sprintf(nineLive, 8)
	for name, c := range map[string]holdCase{
		"made by this one": {rev: 8, found: jobIs, lives: 9, by: 4, want: jobIs},
		"a smaller one":    {rev: 8, found: small, lives: 9, by: 7, want: nine, holds: true},
		"a larger one":     {rev: 8, found: `{"template":"knd","size":10,"revision":4}`, lives: 9, by: 7, want: ten, holds: true},
		"one that was held before": {
			rev: 8, found: `{"template":"knd","size":1,"missing":true,"revision":4}`, lives: 9, by: 7, want: nine, holds: true,
		},
		"a removal":              {rev: 8, found: removed, lives: 9, by: 7, want: undefined, holds: true},
		"a removal that says so": {rev: 8, found: removed, lives: 9, by: 6, want: removed},
		"nothing lives":          {rev: 8, found: small, want: small},

		"a cache knows the same": {rev: 7, found: small, known: small, behind: true, lives: 9, by: 7, want: nine, holds: true},
		"as does this leader":    {rev: 7, found: small, known: small, lives: 9, by: 7, want: nine, holds: true},
		"a cache knows as much": {
			rev: 6, found: small, known: `{"template":"knd","size":1,"revision":5}`, behind: true, lives: 9, by: 7, want: nine, holds: true,
		},
		"a cache knows the removal": {
			rev: 7, found: removed, known: removed, behind: true, lives: 9, by: 7, want: undefined, holds: true,
		},
		"a cache knows a removal":     {known: removed, behind: true, lives: 9, by: 7, want: undefined, holds: true},
		"a cache knows its end":       {rev: 6, found: removed, known: gone, behind: true, lives: 9, by: 7, want: undefined, holds: true},
		"a cache knows a smaller one": {known: small, behind: true, lives: 9, by: 7, want: nine, holds: true},

		"by hand": {
			found: `{"template":"knd","size":1,"revision":9}`, lives: 9, by: 7, want: `{"template":"knd","size":1,"revision":9}`,
		},
		"by hand, without a revision":  {found: byHand, lives: 9, by: 7, want: `{"template":"knd","size":1,"revision":8}`, holds: true},
		"by hand, over a known one":    {found: `{"size":1}`, known: jobIs, lives: 9, want: `{"size":1,"revision":5}`, holds: true},
		"by hand, where there is none": {found: `{"size":1}`, want: `{"size":1}`},
		"by hand, a removal": {
			found: `{"removed":true}`, known: jobIs, lives: 9, by: 4, want: `{"removed":true,"revision":5}`, holds: true,
		},
		"with a header, and no revision": {
			rev: 8, found: byHand, known: jobIs, want: `{"template":"knd","size":1,"revision":5}`, holds: true,
		},
	} {
		t.Run(name, func(t *testing.T) { c.check(t, job) })
	}
}

// TestHoldKeepsRevisions: no revision is reused even if the object is gone, too.
func TestHoldKeepsRevisions(t *testing.T) {
	s := holdShard(t)
	for _, known := range []string{removed, gone} {
		r, differs := s.HoldGroup(job, config.GroupRecord{}, config.History{Known: at(t, 7, known), Certain: true})
		if next := change(t, s, job, r.Since(3), config.Change{Template: ptr("knd")}); differs || r.Stored() || next.Revision != 7 {
			t.Errorf("after %s the next revision is %d, want 7", known, next.Revision)
		}
	}
}

// The effective record never has an earlier revision than any known one, is stored in one write,
// and is then judged as it is.
func TestHoldIsStable(t *testing.T) {
	s := holdShard(t)
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.SampledFrom([]fleet.GroupKey{web, job}).Draw(rt, "key")
		is, h := anyRecord(t, rt, "found"), config.History{Known: anyRecord(t, rt, "known")}
		if h.Living = rapid.IntRange(0, 3).Draw(rt, "living"); h.Living > 0 {
			h.Lives, h.Revision = true, rapid.Uint64Range(0, 5).Draw(rt, "by")
		}
		h.Certain = h.Known.Stored() && rapid.Bool().Draw(rt, "certain")
		h.Acting = h.Certain
		input := encoded(t, is) + encoded(t, h.Known)
		goesOn, differs := s.HoldGroup(key, is, h)
		if encoded(t, is)+encoded(t, h.Known) != input {
			rt.Fatal("the input is changed")
		}
		if goesOn.Revision < max(h.Known.Revision, h.Revision) && (goesOn.Stored() || key == job) {
			rt.Fatalf("goes on with revision %d, known are %d and %d", goesOn.Revision, h.Known.Revision, h.Revision)
		}
		if differs != (goesOn.Stored() && !goesOn.Same(is)) {
			rt.Fatalf("differs: %v\n%s\n%s", differs, encoded(t, is), encoded(t, goesOn))
		}
		if !differs {
			return
		}
		goesOn.Header = config.Header{Epoch: 2, Rev: max(is.Rev, h.Known.Rev) + 1, Writer: "w"}
		for _, next := range []config.History{{Known: goesOn, Certain: true}, {Known: h.Known}, {}} {
			next.Living, next.Lives, next.Revision, next.Acting = h.Living, h.Lives, h.Revision, h.Acting
			if again, differs := s.HoldGroup(key, stored(t, goesOn), next); differs || !reflect.DeepEqual(again, goesOn) {
				rt.Fatalf("goes on with %s, and once that is stored with %s", encoded(t, goesOn), encoded(t, again))
			}
		}
	})
}
