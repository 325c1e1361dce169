package settings_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/operator/settings"
)

const twoShards = `# as in the documentation
cluster_id: example-cluster
tenant: blue
shards:
  us-west-2a:
    registration_addr: "10.0.0.1:8992"
    operator_addr: "10.0.0.1:8993; 10.0.0.2:8993"
  us-east-1a:
    registration_addr: nstance.internal:8992
    operator_addr: "[fd00::1]:8993"
`

func TestParseFile(t *testing.T) {
	have, err := settings.ParseFile([]byte("---\n" + twoShards))
	if err != nil {
		t.Fatal(err)
	}
	want := settings.File{Cluster: "example-cluster", Tenant: "blue", NodeStartup: 10 * time.Minute, Shards: []settings.Shard{
		{ID: "us-east-1a", Registration: []string{"nstance.internal:8992"}, Operator: []string{"[fd00::1]:8993"}},
		{ID: "us-west-2a", Registration: []string{"10.0.0.1:8992"}, Operator: []string{"10.0.0.1:8993", "10.0.0.2:8993"}},
	}}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("%+v\nwant %+v", have, want)
	}
	shards := []client.Shard{
		{ID: "us-east-1a", Addrs: []string{"[fd00::1]:8993"}}, {ID: "us-west-2a", Addrs: []string{"10.0.0.1:8993", "10.0.0.2:8993"}},
	}
	if have := have.Operators(); !reflect.DeepEqual(have, shards) {
		t.Errorf("%+v\nwant %+v", have, shards)
	}
}

func TestNodeStartupTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 10 * time.Minute, "1h30m": 90 * time.Minute, "0s": 0} {
		line := "node_startup_timeout: " + text
		if text == "" {
			line = ""
		}
		if have, err := settings.ParseFile([]byte(twoShards + line)); err != nil || have.NodeStartup != want {
			t.Errorf("%q: %v, %v; want %v", text, have.NodeStartup, err, want)
		}
	}
}

// TestParseFileErrors: the error names each invalid field, its value and what is valid.
func TestParseFileErrors(t *testing.T) {
	const shards = "\nshards: {one: {registration_addr: \"h:1\", operator_addr: \"h:2\"}}\n"
	name := strings.Repeat("n", 32)
	for text, wants := range map[string][]string{
		"":                                   {"the file", "missing", "cluster_id"},
		"- a":                                {"the file", `["a"]`, "cluster_id"},
		"a: [":                               {"line"},
		"cluster_id: a\nx: 1":                {"x: unknown field", "tenant"},
		"cluster_id: a_b":                    {`cluster_id: "a_b"`, "lowercase"},
		"cluster_id: 7":                      {"cluster_id: 7", "quotes"},
		"node_startup_timeout: 10" + shards:  {"node_startup_timeout: 10", "at least 1m0s"},
		"node_startup_timeout: 30s" + shards: {`node_startup_timeout: "30s"`, "no limit"},
		"tenant: [a]" + shards:               {`tenant: ["a"]`, "text"},
		"tenant: \"\"" + shards:              {`tenant: ""`, "lowercase"},
		"tenant: null" + shards:              {"tenant: it is missing"},
		"cluster_id: " + name + "\ntenant: " + name[:30] + shards: {`"` + name + `"`, `"` + name[:30] + `"`, "62", "at most 61", "--"},
		"cluster_id: a\ncluster_id: b" + shards:                   {"cluster_id", "already"},
		"cluster_id: a" + shards + "---\ncluster_id: b" + shards:  {"more than one"},
		"cluster_id: a":              {"shards: it is missing", "registration_addr"},
		"cluster_id: a\nshards: {}":  {"shards: {}", "one shard at least"},
		"cluster_id: a\nshards: [1]": {"shards: [1]"},
		"cluster_id: a\nshards: {A: {registration_addr: \"h:1\", operator_addr: \"h:1\"}}": {`shards: "A"`, "lowercase"},
		"cluster_id: a\nshards: {b: 3}":                            {"shards.b: 3", "operator_addr"},
		"cluster_id: a\nshards: {b: {operator_addr: \"h:1\"}}":     {"shards.b.registration_addr: it is missing"},
		"cluster_id: a\nshards: {b: {registration_addr: \"h:1\"}}": {"shards.b.operator_addr: it is missing"},
		"cluster_id: a\nshards: {b: {registration_addr: h, operator_addr: \"h:1;h:0\"}}": {
			`shards.b.registration_addr: "h"`, `shards.b.operator_addr: "h:0"`,
		},
		"cluster_id: a\nshards: {b: {registration_addr: \"h:1\", operator_addr: \"h:1\", weight: 2}}": {
			"shards.b.weight: unknown field",
		},
		strings.Repeat("#", 1<<20+1): {"1048577", "1048576"},
	} {
		_, err := settings.ParseFile([]byte(text))
		if err == nil {
			t.Errorf("%.200s: no error", text)
			continue
		}
		for _, word := range wants {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%.200s: %v\nlacks %q", text, err, word)
			}
		}
	}
}

// TestLongestNames: 61 characters in all are valid.
func TestLongestNames(t *testing.T) {
	text := "cluster_id: " + strings.Repeat("c", 32) + "\ntenant: " + strings.Repeat("t", 29) +
		"\nshards: {one: {registration_addr: \"h:1\", operator_addr: \"h:2\"}}"
	if _, err := settings.ParseFile([]byte(text)); err != nil {
		t.Error(err)
	}
}

// FuzzParseFile: an accepted file is complete, and its shards are sorted.
func FuzzParseFile(f *testing.F) {
	f.Add([]byte(twoShards))
	f.Add([]byte(smallFile))
	f.Add([]byte("--- {a: *b}"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := settings.ParseFile(text)
		if err != nil {
			if !reflect.DeepEqual(file, settings.File{}) {
				t.Errorf("an error with a result: %+v", file)
			}
			return
		}
		if file.Cluster == "" || file.Tenant == "" || len(file.Cluster)+len(file.Tenant) > 61 || len(file.Shards) == 0 {
			t.Errorf("accepted: %+v", file)
		}
		for i, s := range file.Shards {
			if s.ID == "" || len(s.Registration) == 0 || len(s.Operator) == 0 || i > 0 && file.Shards[i-1].ID >= s.ID {
				t.Errorf("accepted: %+v", file.Shards)
			}
		}
	})
}
