package leader

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
)

const minimal = `{
  "cluster": { "id": "a", "secrets": { "encryption_key": { "provider": "env", "source": "K" } } },
  "server": { "provider": { "kind": "fake" }, "subnet_pools": { "p": { "subnets": ["s"], "tenants": ["*"] } } MORE },
  "tenants": { "prod": {} },
  "templates": { "knd": { "tenants": ["*"], "kind": "knd", "arch": "amd64", "subnet_pool": "p" } },
  "groups": { GROUPS },
}`

func parsed(t *testing.T, pairs ...string) *config.Shard {
	t.Helper()
	text := strings.NewReplacer(append(pairs, "MORE", "", "GROUPS", "")...).Replace(minimal)
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRestartFields: a change of any of them is reported and kept out; everything else takes
// effect.
func TestRestartFields(t *testing.T) {
	boot := parsed(t)
	for field, pair := range map[string][2]string{
		"cluster.id":            {`"id": "a"`, `"id": "b"`},
		"cluster.secrets":       {`"source": "K"`, `"source": "L"`},
		"server.provider":       {`"kind": "fake"`, `"kind": "fake", "options": { "x": [1] }`},
		"server.bind":           {`MORE`, `, "bind": { "agent_addr": ":9" }`},
		"server.advertise":      {`MORE`, `, "advertise": { "agent_addr": "h:9" }`},
		"server.leader_network": {`MORE`, `, "leader_network": { "ipv4": "10.0.0.9" }`},
	} {
		now := parsed(t, pair[0], pair[1], "GROUPS", `"prod": { "web": { "template": "knd" } }`)
		have, ending := restartFields(boot, now)
		if !slices.Equal(have, []string{field}) {
			t.Errorf("a change of %s: %v", field, have)
		}
		kept := withBootFields(boot, now)
		if differ, _ := restartFields(boot, kept); len(differ) > 0 || len(kept.Groups) != 1 || reflect.DeepEqual(kept, now) {
			t.Errorf("%s: kept %+v", field, kept)
		}
		ends := slices.Contains([]string{"cluster.id", "cluster.secrets", "server.provider", "server.bind"}, field)
		if len(ending) > 0 != ends {
			t.Errorf("a takeover on another %s: %v", field, ending)
		}
	}
	if have, _ := restartFields(boot, parsed(t)); have != nil {
		t.Errorf("no change: %v", have)
	}
}

// TestRestartOfAMovedAddress: if the provider moves the leader's address, the next leader has to
// move the configured address, or none.
func TestRestartOfAMovedAddress(t *testing.T) {
	network := func(text string) *config.Shard { return parsed(t, "MORE", `, "leader_network": `+text) }
	moved := network(`{ "ipv4": "10.0.0.9", "interface_id": "net" }`)
	for name, c := range map[string]struct {
		boot, now *config.Shard
		ends      bool
	}{
		"another address":        {moved, network(`{ "ipv4": "10.0.0.8", "interface_id": "net" }`), true},
		"another interface":      {moved, network(`{ "ipv4": "10.0.0.9", "interface_id": "other" }`), true},
		"moved outside":          {moved, network(`{ "ipv4": "10.0.0.9" }`), true},
		"moved by the provider":  {network(`{ "ipv4": "10.0.0.9" }`), moved, true},
		"none any more":          {moved, parsed(t), true},
		"another, moved outside": {network(`{ "ipv4": "10.0.0.9" }`), network(`{ "ipv4": "10.0.0.8" }`), false},
		"the same":               {moved, network(`{ "ipv4": "10.0.0.9", "interface_id": "net" }`), false},
	} {
		if _, ending := restartFields(c.boot, c.now); slices.Contains(ending, "server.leader_network") != c.ends {
			t.Errorf("%s: a takeover ends for %v", name, ending)
		}
	}
}

// TestRestartFieldsAreDocumented compares the documentation's table with the code.
func TestRestartFieldsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/config-refresh.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| needs a restart |")
	if !found {
		t.Fatal("there is no table of the fields that need a restart")
	}
	var documented []string
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			break
		}
		documented = append(documented, strings.Trim(cells[1], " `"))
	}
	var names []string
	for _, f := range bootFields() {
		names = append(names, f.name)
	}
	if !slices.Equal(documented, names) {
		t.Errorf("the page names %v, the code %v", documented, names)
	}
}
