package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

func readExample(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t testing.TB, text string) *config.Shard {
	t.Helper()
	shard, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return shard
}

func TestExamplesHaveNoProblems(t *testing.T) {
	for _, name := range []string{"config.jsonc", "dev/dev-1.jsonc", "dev/dev-2.jsonc"} {
		t.Run(name, func(t *testing.T) {
			shard := parse(t, string(readExample(t, name)))
			groups, problems := shard.Resolve(nil)
			if problems != nil {
				t.Errorf("Resolve: %v", problems)
			}
			web := groups[fleet.GroupKey{Tenant: "default", Name: "web"}]
			if web.Size != 2 || web.Disabled != "" || len(web.Subnets) == 0 {
				t.Errorf("group web is %+v", web)
			}
			checkRoundTrip(t, shard)
		})
	}
}

// checkRoundTrip checks that an accepted config is accepted again once encoded, with the same
// meaning.
func checkRoundTrip(t testing.TB, shard *config.Shard) {
	t.Helper()
	first, err := shard.Encode()
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	again, err := config.Parse(first)
	if err != nil {
		t.Fatalf("Parse of what Encode wrote: %v\n%s", err, first)
	}
	second, err := again.Encode()
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	if string(first) != string(second) {
		t.Fatalf("changed by a round trip:\n%s\n%s", first, second)
	}
}
