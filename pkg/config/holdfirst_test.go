package config_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/config"
)

// TestHoldAllOverrides: a lost override holds its static group, whatever it overrides.
func TestHoldAllOverrides(t *testing.T) {
	for _, override := range []string{
		`"size":2`, `"instance_type":"c7g.large"`, `"vars":{"a":"b"}`, `"rotation":{}`, `"leaving":["knd01hf7yat00e00r000000000001"]`,
	} {
		h := config.History{Known: at(t, 7, `{`+override+`,"revision":5}`), Living: 1, Lives: true, Certain: true}
		if r, differs := holdShard(t).HoldGroup(web, config.GroupRecord{}, h); !differs || !r.Missing {
			t.Errorf("%s: goes on with %s, differs: %v", override, saidBy(r), differs)
		}
	}
}

// TestHoldWithoutAnAcceptedConfig: without the config that was accepted before, only a size in the
// record, or a removal, says that a group has too many instances.
func TestHoldWithoutAnAcceptedConfig(t *testing.T) {
	for name, c := range map[string]struct {
		is     string
		lives  int
		beyond int
		first  bool
		holds  bool
	}{
		"no record":                      {"", 3, 0, true, true},
		"no record, as many as its size": {"", 1, 0, true, false},
		"no record, others replaced":     {"", 3, 2, true, false},
		"another override":               {`{"vars":{"a":"b"},"revision":5}`, 3, 0, true, true},
		"another, and all are known":     {`{"vars":{"a":"b"},"revision":5}`, 3, 0, false, false},
		"another, others replaced":       {`{"vars":{"a":"b"},"revision":5}`, 3, 2, true, false},
		"a tombstone":                    {gone, 3, 0, true, true},
		"a tombstone, and all are known": {gone, 3, 0, false, false},
		"a size":                         {`{"size":2,"revision":5}`, 3, 0, true, false},
		"a removal":                      {removed, 3, 0, true, false},
	} {
		is, h := config.GroupRecord{}, config.History{Living: c.lives, Lives: true, Beyond: c.beyond, First: c.first}
		if c.is != "" {
			is = at(t, 7, c.is)
		}
		r, differs := holdShard(t).HoldGroup(web, is, h)
		if differs != c.holds || r.Missing != c.holds || c.holds && (r.Size == nil || *r.Size != c.lives) {
			t.Errorf("%s: goes on with %s, differs: %v, want %v", name, saidBy(r), differs, c.holds)
		}
	}
}

// TestHoldSince: a record that is made here has a later revision than any that may have been given.
func TestHoldSince(t *testing.T) {
	h := config.History{Living: 3, Lives: true, Revision: 4, Since: 40}
	if r, _ := holdShard(t).HoldGroup(job, config.GroupRecord{}, h); r.Revision != 41 {
		t.Errorf("revision %d, want 41", r.Revision)
	}
}
