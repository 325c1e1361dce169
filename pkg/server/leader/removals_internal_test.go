package leader

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	_ "github.com/nstance/nstance/pkg/rapidseed"
)

func instance(n int, group string, phase fleet.Phase, onDemand bool) fleet.Instance {
	return fleet.Instance{
		ID: fleet.InstanceID(fmt.Sprintf("knd01hf7yat00e00r000000000%03d", n)), Tenant: "default", Group: group, Phase: phase, OnDemand: onDemand,
	}
}

// ofSize returns a record with a size.
func ofSize(n int) config.GroupRecord {
	r, err := config.DecodeGroup(fmt.Appendf(nil, `{"size": %d}`, n))
	if err != nil {
		panic(err)
	}
	return r
}

// TestRemovals: what a static config removes compared to the previous one, by instances and
// dynamic groups.
func TestRemovals(t *testing.T) {
	const web3 = `"default": { "web": { "template": "knd", "size": 3 } }`
	size := func(n int) config.GroupRecords {
		return config.GroupRecords{{Tenant: "default", Name: "web"}: ofSize(n)}
	}
	leaving := []fleet.Instance{instance(1, "web", fleet.Draining, false), instance(2, "web", fleet.Deleted, false)}
	onDemand := []fleet.Instance{instance(1, "web", fleet.Running, true)}
	web0, web1 := strings.Replace(web3, "3", "0", 1), strings.Replace(web3, `, "size": 3`, "", 1)
	running := []fleet.Instance{instance(1, "web", fleet.Running, false), instance(2, "web", fleet.Pending, false)}
	for name, c := range map[string]struct {
		from, to string
		records  config.GroupRecords
		all      []fleet.Instance
		want     string
	}{
		"the same":                         {web3, web3, nil, running, ""},
		"gone":                             {web3, ``, nil, running, "default/web removed 2"},
		"gone, and none is there":          {web3, ``, nil, nil, ""},
		"gone, and all leave already":      {web3, ``, nil, leaving, ""},
		"gone, with on-demand ones alone":  {web0, ``, nil, onDemand, "default/web removed 1"},
		"gone, and it has an entry":        {web3, ``, size(1), running, ""},
		"gone, and its entry has size 0":   {web3, ``, size(0), running, ""},
		"of size 0":                        {web3, web0, nil, running, "default/web emptied 2"},
		"of size 0, on-demand ones stay":   {web3, web0, nil, onDemand, ""},
		"of size 0, and the entry counts":  {web3, web0, size(2), running, ""},
		"smaller":                          {web3, strings.Replace(web3, "3", "1", 1), nil, running, ""},
		"its size is lost":                 {web3, web1, nil, running, "default/web unset 2 to 1"},
		"its size is lost, one is there":   {web3, web1, nil, running[:1], ""},
		"a size of 1 is lost":              {strings.Replace(web3, "3", "1", 1), web1, nil, running, ""},
		"a size is lost, the entry counts": {web3, web1, size(2), running, ""},
		"it never had a size":              {web1, web1 + " ", nil, running, ""},
		"no size, then gone":               {web1, ``, nil, running, "default/web removed 2"},
		"no size, then size 0":             {web1, web0, nil, running, "default/web emptied 2"},
		"no size, then a size":             {web1, web3, nil, running, ""},
		"it was none before":               {``, ``, nil, running, ""},
		"of size 0, and it is listed":      {web3, web0 + ` }, "removed": ["default/web"], "files": {`, nil, running, ""},
		"gone, and it is listed":           {web3, ` }, "removed": ["default/web"], "files": {`, nil, running, ""},
		"gone, and others are listed":      {web3, ` }, "removed": ["default/we"], "files": {`, nil, running, "default/web removed 2"},
		"renamed":                          {web3, strings.Replace(web3, "web", "www", 1), nil, running, "default/web removed 2"},
	} {
		from, to := parsed(t, "GROUPS", c.from), parsed(t, "GROUPS", c.to)
		var have []string
		for _, r := range removals(from, to, c.records, liveByGroup(c.all)) {
			how := "removed"
			switch {
			case r.Emptied:
				how = "emptied"
			case r.SizeUnset:
				how = "unset"
			}
			line := fmt.Sprintf("%s %s %d", r.Key, how, len(r.Instances))
			if r.Keeps > 0 {
				line += fmt.Sprintf(" to %d", r.Keeps)
			}
			have = append(have, line)
		}
		if got := strings.Join(have, ", "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if len(have) > 0 && !mayRemove(from, to) {
			t.Errorf("%s: the texts alone do not show that it may", name)
		}
	}
}

// TestListOfRemoved: a list confirms no removal that the config before listed, and none of a group of
// the API that its template empties.
func TestListOfRemoved(t *testing.T) {
	const list, web3 = ` }, "removed": ["default/web"], "files": {`, `"default": { "web": { "template": "knd", "size": 3 } }`
	running := liveByGroup([]fleet.Instance{instance(1, "web", fleet.Running, false)})
	if all := removals(parsed(t, "GROUPS", web3), parsed(t, "GROUPS", list), nil, running); len(all) != 0 {
		t.Errorf("a list that is new: %v", all)
	}
	ofAPI, err := config.DecodeGroup([]byte(`{"template": "knd"}`))
	if err != nil {
		t.Fatal(err)
	}
	records := config.GroupRecords{{Tenant: "default", Name: "web"}: ofAPI}
	empties := []string{"GROUPS", list, `"kind": "knd"`, `"size": 0, "kind": "knd"`}
	sized := []string{`"kind": "knd"`, `"size": 3, "kind": "knd"`}
	if all := removals(parsed(t, sized...), parsed(t, empties...), records, running); len(all) != 1 {
		t.Errorf("a group of the API: %v", all)
	}
	if all := removals(parsed(t, append([]string{"GROUPS", list}, sized...)...), parsed(t, empties...), records, running); len(all) != 1 {
		t.Errorf("a list that is carried over: %v", all)
	}
}

// TestRemovalsOfUnknownInstances: while records may not have been listed, a defined group may
// have instances; an undefined one needs no confirmation.
func TestRemovalsOfUnknownInstances(t *testing.T) {
	const web3 = `"default": { "web": { "template": "knd", "size": 3 }, "idle": { "template": "knd", "size": 0 } }`
	known := []fleet.Instance{instance(1, "web", fleet.Running, false)}
	for name, c := range map[string]struct {
		to   string
		all  []fleet.Instance
		want string
	}{
		"the same":              {web3, nil, ""},
		"gone, one is known":    {``, known, "default/web 1"},
		"gone, none is known":   {``, nil, "default/web 0"},
		"of size 0":             {strings.Replace(web3, "3", "0", 1), nil, "default/web 0"},
		"smaller":               {strings.Replace(web3, "3", "1", 1), nil, ""},
		"one that none is of":   {strings.Replace(web3, "idle", "lazy", 1), nil, ""},
		"one more, and renamed": {strings.NewReplacer("web", "www", "idle", "busy").Replace(web3), known, "default/web 1"},
	} {
		from, to := parsed(t, "GROUPS", web3), parsed(t, "GROUPS", c.to)
		there := liveByGroup(c.all)
		perhaps(there, from, nil)
		var have []string
		for _, r := range removals(from, to, nil, there) {
			have = append(have, fmt.Sprintf("%s %d", r.Key, len(r.Instances)))
		}
		if got := strings.Join(have, ", "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestTextsShowRemovals: texts for which mayRemove is false remove nothing, whatever the
// instances and sizes.
func TestTextsShowRemovals(t *testing.T) {
	groups := func(r *rapid.T, which string) string {
		var lines []string
		for _, name := range []string{"a", "b", "c"} {
			switch size := rapid.IntRange(-2, 2).Draw(r, which+name); size {
			case -2:
				lines = append(lines, fmt.Sprintf(`%q: { "template": "knd" }`, name))
			case -1:
			default:
				lines = append(lines, fmt.Sprintf(`%q: { "template": "knd", "size": %d }`, name, size))
			}
		}
		return `"default": { ` + strings.Join(lines, ", ") + ` }`
	}
	rapid.Check(t, func(r *rapid.T) {
		from, to := parsed(t, "GROUPS", groups(r, "from ")), parsed(t, "GROUPS", groups(r, "to "))
		records := config.GroupRecords{}
		var all []fleet.Instance
		for n, name := range []string{"a", "b", "c"} {
			if size := rapid.IntRange(-1, 2).Draw(r, "entry "+name); size >= 0 {
				key := fleet.GroupKey{Tenant: "default", Name: name}
				if _, static := from.Static(key); static {
					records[key] = ofSize(size)
				}
			}
			for k := range rapid.IntRange(0, 3).Draw(r, "instances of "+name) {
				all = append(all, instance(10*n+k, name, fleet.Running, rapid.Bool().Draw(r, "on demand")))
			}
		}
		found := removals(from, to, records, liveByGroup(all))
		if len(found) > 0 && !mayRemove(from, to) {
			r.Fatalf("%v, and the texts do not show it", found)
		}
		for _, x := range found {
			if !slices.ContainsFunc(all, func(i fleet.Instance) bool { return i.ID == x.Instances[0] }) {
				r.Fatalf("%v of instances that are not there", x)
			}
		}
	})
}
