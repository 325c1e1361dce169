package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

func quotaShard(t *testing.T, quota, groups string) *config.Shard {
	t.Helper()
	return parse(t, strings.Replace(sharedWith("GROUPS", groups), `"blue": {}`, `"blue": { "quota": { `+quota+` } }`, 1))
}

// checkQuota checks a change of a tenant with a static group, a dynamic one and one that is
// being deleted, eight instances in all.
func checkQuota(t *testing.T, quota, group string, change config.Change, living config.Living) error {
	t.Helper()
	s := quotaShard(t, quota, `"blue": { "web": { "template": "open", "size": 4 } }`)
	all := records(t, `{ "blue": { "jobs": { "template": "open", "size": 3, "revision": 9 },
		"old": { "template": "open", "size": 9, "removed": true }, "web": { "size": 5 },
		"gone": { "deleted_at": "2026-03-01T12:00:00Z", "revision": 4, "template": "open", "size": 9 } } }`)
	var has config.GroupUsage
	for key, r := range all {
		has = has.Plus(s.Usage(key, r))
	}
	key := fleet.GroupKey{Tenant: "blue", Name: group}
	after, err := s.ChangeGroup(key, all[key], change, config.Checks{})
	if err != nil {
		t.Fatal(err)
	}
	return s.CheckUsage(key, has, all[key], after, func() config.Living { return living })
}

// TestQuota: a change through the API that exceeds the quota is refused with the field, the
// limit, the current and the wanted value; one that needs less, or no more, succeeds whatever
// the limit is.
func TestQuota(t *testing.T) {
	open := ptr("open")
	leaving := []fleet.InstanceID{"knd01jd3kqw00e0080000000000aa"}
	many := map[string]any{"x": strings.Repeat("y", 100)}
	for name, c := range map[string]struct {
		quota  string
		group  string
		change config.Change
		want   string // empty: it goes through
	}{
		"room":               {`"groups": 3`, "new", config.Change{Template: open, Create: true}, ""},
		"one group too many": {`"groups": 2`, "new", config.Change{Template: open}, "groups: at most 2 are allowed, there are 2"},
		"instances":          {`"instances": 10`, "jobs", config.Change{Size: ptr(5)}, ""},
		"too many instances": {
			`"instances": 10`, "jobs", config.Change{Size: ptr(6)}, "instances: at most 10 are allowed, there are 8, and with this 11",
		},
		"of a group of the config": {
			`"instances": 10`, "web", config.Change{Size: ptr(8)}, "instances: at most 10 are allowed, there are 8, and with this 11",
		},
		"by the size of a template":   {`"instances": 8`, "new", config.Change{Template: open}, "at most 8 are allowed, there are 8"},
		"a group that comes again":    {`"instances": 10`, "old", config.Change{Template: open, Size: ptr(3)}, "there are 8, and with this 11"},
		"one that was forgotten":      {`"groups": 2`, "gone", config.Change{Template: open}, "groups: at most 2 are allowed, there are 2"},
		"fewer, above a lower limit":  {`"instances": 4`, "jobs", config.Change{Size: ptr(2)}, ""},
		"as many, above it":           {`"instances": 4, "groups": 1`, "jobs", config.Change{Vars: many}, ""},
		"bytes":                       {`"config_bytes": 250`, "jobs", config.Change{Vars: many}, "config_bytes: at most 250 are allowed, there"},
		"fewer, for want of bytes":    {`"config_bytes": 1`, "jobs", config.Change{Size: ptr(1), Remove: leaving}, ""},
		"a claim, for want of bytes":  {`"config_bytes": 1`, "jobs", config.Change{By: config.By{Manager: "m"}}, ""},
		"a pause, for want of bytes":  {`"config_bytes": 1`, "jobs", config.Change{RolloutPaused: ptr(true)}, ""},
		"an override, for want too":   {`"config_bytes": 1`, "web", config.Change{Size: ptr(1)}, ""},
		"nothing, for want of groups": {`"groups": 1`, "jobs", config.Change{Size: ptr(0)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkQuota(t, c.quota, c.group, c.change, config.Living{})
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.As(err, new(*config.QuotaError)) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "tenants.blue.quota.") {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// TestQuotaOfAnAbort: what an abort adds to a record counts for no quota, nor does its end.
func TestQuotaOfAnAbort(t *testing.T) {
	s := quotaShard(t, `"config_bytes": 1`, `"blue": { "web": { "template": "open", "size": 4 } }`)
	key := fleet.GroupKey{Tenant: "blue", Name: "jobs"}
	was := record(t, `{"template":"open","size":3,"revision":8}`)
	of := built(nil, 1, group(t, s, key, was))
	was = change(t, s, key, was, config.Change{InstanceType: ptr("huge")})
	for _, edit := range []func(config.GroupRecord) config.GroupRecord{
		func(r config.GroupRecord) config.GroupRecord { return abort(t, s, key, r, of) },
		func(r config.GroupRecord) config.GroupRecord { return retry(t, s, key, r) },
	} {
		is := edit(was)
		if err := s.CheckUsage(key, s.Usage(key, was), was, is, nil); err != nil {
			t.Errorf("%s: %v", saidBy(is), err)
		}
		was = is
	}
	plain := was
	plain.Replaced, plain.Aborted = nil, nil
	if all, own := s.Usage(key, was), s.Usage(key, plain); all != own || was.Aborted == nil || was.Replaced == nil {
		t.Errorf("%s: %+v, want %+v", saidBy(was), all, own)
	}
}

// TestQuotaBesideWhatLeaves: only growth has to fit beside the leaving instances.
func TestQuotaBesideWhatLeaves(t *testing.T) {
	for _, c := range []struct {
		size   int
		living config.Living
		want   string // empty: it goes through
	}{
		{4, config.Living{All: 9, Leaving: 1}, ""},
		{5, config.Living{All: 9, Leaving: 1}, "there are 9, and with this 11 (live instances: 9, of which leaving: 1; " +
			"they count until they are gone: wait for that, or acknowledge their drains) (the limit is tenants.blue.quota.instances"},
		{6, config.Living{All: 10, Leaving: 2}, "there are 10, and with this 13 (the limit is"}, // too many even without the leaving ones
		{3, config.Living{All: 16, Leaving: 8}, ""},
		{2, config.Living{All: 16, Leaving: 8}, ""},
	} {
		err := checkQuota(t, `"instances": 10`, "jobs", config.Change{Size: &c.size}, c.living)
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("3 to %d beside %+v: %v, want %q", c.size, c.living, err, c.want)
		}
	}
}

// TestQuotaDefaults: tenant default has no limits unless they are set; every other tenant has,
// also one that the config no longer declares.
func TestQuotaDefaults(t *testing.T) {
	s := quotaShard(t, `"on_demand": 0`, "")
	if q := s.QuotaOf("default"); q != (config.Quota{}) {
		t.Errorf("default has %+v", q)
	}
	for tenant, onDemand := range map[string]int{"blue": 0, "red": 100, "gone": 100} {
		if q := s.QuotaOf(tenant); q.Groups == nil || *q.Groups != 100 || *q.Instances != 1000 || *q.OnDemand != onDemand ||
			*q.ConfigBytes != 1<<20 || *q.CallsPerSecond != 200 || *q.ReadsPerSecond != 20 {
			t.Errorf("%s has %+v", tenant, q)
		}
	}
	bound := parse(t, strings.Replace(sharedWith(), `"blue": {}`, `"default": { "quota": { "groups": 7 } }, "blue": {}`, 1))
	if q := bound.QuotaOf("default"); q.Groups == nil || *q.Groups != 7 || q.Instances != nil {
		t.Errorf("default has %+v, want what it was given", q)
	}
}

// TestConfigKeepsItsQuotas: static groups that exceed a quota of the same config are a mistake.
func TestConfigKeepsItsQuotas(t *testing.T) {
	for _, c := range []struct {
		quota string
		size  int
		want  string
	}{
		{`"instances": 8`, 8, ""},
		{`"instances": 8`, 9, "tenants.blue.quota.instances: 8 are allowed, but the groups of this config need 9"},
		{``, 1001, "tenants.blue.quota.instances: 1000 are allowed, but the groups of this config need 1001"},
		{`"groups": 0`, 1, "tenants.blue.quota.groups: 0 are allowed, but the groups of this config need 1"},
	} {
		text := strings.Replace(sharedWith("GROUPS", fmt.Sprintf(`"blue": { "web": { "template": "open", "size": %d } }`, c.size)),
			`"blue": {}`, `"blue": { "quota": { `+c.quota+` } }`, 1)
		if c.want == "" {
			checkRoundTrip(t, parse(t, text))
		} else if got := problemsOf(t, text); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s and %d instances: %s, want %s", c.quota, c.size, got, c.want)
		}
	}
}
