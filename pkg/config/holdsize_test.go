package config_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/config"
	_ "github.com/nstance/nstance/pkg/rapidseed"
)

// TestHoldAllOverrides: a lost override holds its static group, whatever it overrides.
func TestHoldAllOverrides(t *testing.T) {
	for _, override := range []string{
		`"size":2`, `"instance_type":"c7g.large"`, `"vars":{"a":"b"}`, `"rotation":{}`, `"rollout_paused":true`,
		`"leaving":["knd01hf7yat00e00r000000000001"]`, aborted,
	} {
		h := config.History{Known: at(t, 7, `{`+override+`,"revision":5}`), Living: 1, Lives: true, Certain: true}
		if r, differs := holdShard(t).HoldGroup(web, config.GroupRecord{}, h); !differs || !r.Missing {
			t.Errorf("%s: goes on with %s, differs: %v", override, saidBy(r), differs)
		}
	}
}

// TestHoldByConfigSize: a group that has more instances than the config sets is held if its record says
// that the last accepted config set more than both this one and the one that is found in its place.
func TestHoldByConfigSize(t *testing.T) {
	const of3, of1 = `"config_size":3,"revision":5}`, `"config_size":1,"revision":5}`
	for name, c := range map[string]struct {
		is     string
		config int // its size; 0: 1
		found  int // size by the accepted config that is found; 0: this one; -1: it lacks the group
		lives  int // 0: 4
		beyond int
		acts   bool
		holds  bool
	}{
		"no record":                           {holds: true},
		"no record, no more than the size":    {lives: 1},
		"no record, others replaced":          {beyond: 3},
		"no record, while it acts":            {acts: true},
		"a tombstone of another config":       {is: `{"deleted_at":"2026-03-01T12:00:00Z",` + of3, holds: true},
		"a tombstone of this config":          {is: `{"deleted_at":"2026-03-01T12:00:00Z",` + of1},
		"a tombstone that says nothing":       {is: `{"deleted_at":"2026-03-01T12:00:00Z","revision":5}`, holds: true},
		"another override":                    {is: `{"vars":{"a":"b"},` + of3, holds: true},
		"another override, while it acts":     {is: `{"vars":{"a":"b"},` + of3, acts: true},
		"another override of this config":     {is: `{"vars":{"a":"b"},` + of1},
		"another override that says nothing":  {is: `{"vars":{"a":"b"},"revision":5}`, holds: true},
		"what this config replaces":           {is: `{"vars":{"a":"b"},` + of3, found: 3},
		"an older one that this one replaces": {is: `{"vars":{"a":"b"},` + of3, found: 2, holds: true},
		"an older one, and this one is right": {is: `{"vars":{"a":"b"},` + of3, found: 2, config: 3},
		"one from before the group":           {is: `{"deleted_at":"2026-03-01T12:00:00Z",` + of3, found: -1, holds: true},
		"no more than the size":               {is: `{"vars":{"a":"b"},` + of3, lives: 1},
		"held without a size":                 {is: `{"missing":true,` + of3, holds: true},
		"a size":                              {is: `{"size":2,"revision":5}`},
		"a removal":                           {is: `{"removed":true,"revision":5}`},
	} {
		is, lives := config.GroupRecord{}, cmp.Or(c.lives, 4)
		h := config.History{Living: lives, Lives: true, Beyond: c.beyond, Acting: c.acts}
		if c.is != "" {
			is = at(t, 7, c.is)
		}
		if c.found != 0 {
			h.Accepted = sizedWeb(t, c.found)
		}
		r, differs := sizedWeb(t, cmp.Or(c.config, 1)).HoldGroup(web, is, h)
		if differs != c.holds || r.Missing != c.holds || c.holds && (r.Size == nil || *r.Size != lives) {
			t.Errorf("%s: goes on with %s, differs: %v, want %v", name, saidBy(r), differs, c.holds)
		}
	}
}

// TestHoldCountsAgain: the size of a held group that was counted before some of its instances were found
// becomes their number, and any other size stays.
func TestHoldCountsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		is      string
		certain bool
		late    bool
		size    int
	}{
		"held, some found":              {is: `{"size":2,"missing":true,"revision":5}`, late: true, size: 4},
		"held by this leader":           {is: `{"size":2,"missing":true,"revision":5}`, certain: true, late: true, size: 4},
		"undefined, some found":         {is: `{"size":2,"missing":true,"undefined":true,"revision":5}`, late: true, size: 4},
		"held, none found":              {is: `{"size":2,"missing":true,"revision":5}`, size: 2},
		"held, with more than was lost": {is: `{"size":6,"missing":true,"revision":5}`, late: true, size: 6},
		"not held":                      {is: `{"size":2,"revision":5}`, late: true, size: 2},
		"an override known for certain": {is: `{"vars":{"a":"b"},"config_size":4,"revision":5}`, certain: true, late: true, size: 4},
	} {
		is := at(t, 7, c.is)
		h := config.History{Living: 4, Lives: true, Acting: !c.late, Late: c.late, Revision: 5, Certain: c.certain}
		if c.certain {
			h.Known = is
		}
		if r, _ := sizedWeb(t, 1).HoldGroup(web, is, h); r.Size == nil || *r.Size != c.size {
			t.Errorf("%s: goes on with %s, want size %d", name, saidBy(r), c.size)
		}
	}
}

// sizedWeb returns a config whose group web has a size; a negative one: that has no such group.
func sizedWeb(t testing.TB, size int) *config.Shard {
	t.Helper()
	if size < 0 {
		return parse(t, with(``))
	}
	return parse(t, with(fmt.Sprintf(`"groups": { "default": { "web": { "template": "knd", "size": %d } } }`, size)))
}

// TestConfigSizeOfAnyHistory: after any accepted configs, overrides and resets, the last of these
// configs holds no group that has a record, and no successor of it does, whatever lives. An earlier
// one found in its place takes no instance by its smaller size or without the group, and no config
// beside it does.
func TestConfigSizeOfAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := append(rapid.SliceOfN(rapid.IntRange(-1, 4), 1, 4).Draw(rt, "sizes"), rapid.IntRange(0, 4).Draw(rt, "last"))
		r := config.GroupRecord{}
		for i, size := range sizes {
			now := sizedWeb(t, size)
			if i > 0 {
				r = succession(now, sizedWeb(t, sizes[i-1])).Record(web, r)
			}
			switch then := rapid.IntRange(0, 3).Draw(rt, "then"); {
			case size < 0: // no such group
			case then == 0:
				r = change(t, now, web, r, config.Change{Vars: map[string]any{"level": "entry"}})
			case then == 1:
				r = change(t, now, web, r, config.Change{Size: ptr(2)})
			case then == 2:
				reset, err := now.ResetGroup(web, r, config.By{}, noon)
				if err != nil {
					rt.Fatal(err)
				}
				r = reset
			}
		}
		last, overridden := sizes[len(sizes)-1], r.Size != nil
		for _, c := range []struct{ found, config int }{
			{last, last}, {last, rapid.IntRange(0, 4).Draw(rt, "next")},
			{rapid.SampledFrom(append(sizes, -1)).Draw(rt, "found"), rapid.IntRange(0, 4).Draw(rt, "beside it")},
			{rapid.SampledFrom(sizes).Draw(rt, "earlier"), -1},
		} {
			h := config.History{Living: rapid.IntRange(1, 8).Draw(rt, "lives"), Lives: true, Revision: r.Revision}
			if c.config < 0 {
				c.config = c.found
			} else {
				h.Accepted, h.Beyond = sizedWeb(t, c.found), max(0, c.found-c.config)
			}
			goesOn, _ := sizedWeb(t, c.config).HoldGroup(web, r, h)
			held := goesOn.Missing && goesOn.Size != nil && *goesOn.Size >= h.Living
			switch {
			case goesOn.Missing && (overridden || c.found == last && r.Stored()):
				rt.Fatalf("sizes %v, found %d: size %d is held in spite of %s", sizes, c.found, c.config, encoded(t, r))
			case c.config < 0: // the group is held as undefined, or disabled
			case !overridden && max(c.found, c.config) < last && h.Living > max(c.found, c.config) && !held:
				rt.Fatalf("sizes %v, found %d: it takes some of %d away, in spite of %s", sizes, c.found, h.Living, encoded(t, r))
			}
		}
	})
}

// TestConfigSizeOfATemplateThatGoes: a config that was accepted without a group's template gives it nothing,
// so that the next one with the template holds no instance. If it was not accepted last, it is outdated.
func TestConfigSizeOfATemplateThatGoes(t *testing.T) {
	of := func(size string) *config.Shard {
		return parse(t, strings.Replace(minimal, `"subnet_pool": "workers"`, `"subnet_pool": "workers", "size": `+size, 1))
	}
	big, small, without := of("3"), of("2"), parse(t, strings.Replace(minimal, `"knd": {`, `"own": {`, 1))
	r := change(t, big, job, config.GroupRecord{}, config.Change{Template: ptr("knd")})
	h := config.History{Living: 3, Lives: true, Revision: r.Revision, Accepted: without}
	if goesOn, _ := small.HoldGroup(job, r, h); !goesOn.Missing {
		t.Errorf("an outdated config takes away one of three: %s", saidBy(goesOn))
	}
	dropped := succession(without, big).Record(job, r)
	if goesOn, _ := small.HoldGroup(job, dropped, h); goesOn.Missing {
		t.Errorf("the group is held: %s", saidBy(goesOn))
	}
}

// TestHoldSince: a record that is made here has a later revision than any that may have been given.
func TestHoldSince(t *testing.T) {
	h := config.History{Living: 3, Lives: true, Revision: 4, Since: 40}
	if r, _ := holdShard(t).HoldGroup(job, config.GroupRecord{}, h); r.Revision != 41 {
		t.Errorf("revision %d, want 41", r.Revision)
	}
}
