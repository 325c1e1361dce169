package client_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
)

func TestParseServers(t *testing.T) {
	for text, want := range map[string][]client.Shard{
		"a=10.0.0.1:1": {{ID: "a", Addrs: []string{"10.0.0.1:1"}}},
		"b=h:1;h:2, a=[::1]:3": {
			{ID: "a", Addrs: []string{"[::1]:3"}}, {ID: "b", Addrs: []string{"h:1", "h:2"}},
		},
		"a=h:1;h:1": {{ID: "a", Addrs: []string{"h:1"}}},
	} {
		have, err := client.ParseServers(text)
		if err != nil || !reflect.DeepEqual(have, want) {
			t.Errorf("%q is %v, %v; want %v", text, have, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                "none given",
		" ":               "none given",
		"10.0.0.1:8993":   "has no =",
		"a=":              "shard a",
		"a=h":             `"h" is not an address`,
		"a=h:0":           "h:0",
		"A=h:1":           `"A"`,
		"a=h:1,a=h:2":     "semicolon",
		"a=h:1,":          "remove the comma",
		"a=h:1;;h:2":      "shard a",
		"=h:1":            "shard",
		"a=h:1 b=h:2":     "shard a",
		"a=https://h:1/x": "https",
	} {
		if have, err := client.ParseServers(text); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "servers: ") {
			t.Errorf("%q is %v, %v; want an error with %q", text, have, err, want)
		}
	}
}

func FuzzParseServers(f *testing.F) {
	for _, seed := range []string{"a=h:1", "a=h:1;h:2,b=[::1]:3", "a=h:1,a=h:2", ",,;==", "a=\x00:1", "us-west-2a=10.0.0.1:8993"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		shards, err := client.ParseServers(text)
		if err != nil {
			return
		}
		var again []string
		for i, s := range shards {
			if fleet.CheckName(s.ID) != nil || len(s.Addrs) == 0 || (i > 0 && shards[i-1].ID >= s.ID) {
				t.Fatalf("%q gives %v", text, shards)
			}
			for _, addr := range s.Addrs {
				if _, err := rpc.ParseAddr(addr); err != nil {
					t.Fatalf("%q gives %q: %v", text, addr, err)
				}
			}
			again = append(again, s.ID+"="+strings.Join(s.Addrs, ";"))
		}
		same, err := client.ParseServers(strings.Join(again, ","))
		if err != nil || !reflect.DeepEqual(same, shards) {
			t.Fatalf("%q gives %v, written again %v, %v", text, shards, same, err)
		}
	})
}

func TestSelect(t *testing.T) {
	all := []client.Shard{{ID: "a"}, {ID: "b"}}
	if have, err := client.Select(all, ""); err != nil || len(have) != 2 {
		t.Errorf("all: %v, %v", have, err)
	}
	if have, err := client.Select(all, "b"); err != nil || len(have) != 1 || have[0].ID != "b" {
		t.Errorf("one: %v, %v", have, err)
	}
	if _, err := client.Select(all, "c"); err == nil || !strings.Contains(err.Error(), `"c" (have: a, b)`) {
		t.Errorf("none: %v", err)
	}
}
