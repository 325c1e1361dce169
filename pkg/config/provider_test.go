package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
)

// TestWithProvider: everything but the provider is unchanged, including comments.
func TestWithProvider(t *testing.T) {
	text, err := os.ReadFile("../../examples/dev/dev-1.jsonc")
	if err != nil {
		t.Fatal(err)
	}
	changed, err := config.WithProvider(text, "docker", map[string]any{"image": "an-agent"})
	if err != nil {
		t.Fatal(err)
	}
	shard, err := config.Parse(changed)
	if err != nil || shard.Server.Provider.Kind != "docker" || shard.Server.Provider.Options["image"] != "an-agent" {
		t.Fatalf("%+v, %v", shard, err)
	}
	if shard.Server.Provider.Options["args_env"] == nil || shard.Server.Provider.Options["agent"] != nil {
		t.Errorf("options %v, want what groups may set, and none of the other provider's", shard.Server.Provider.Options)
	}
	before, _, _ := strings.Cut(string(text), `"kind"`)
	_, after, _ := strings.Cut(string(text), `"bind"`)
	if !strings.HasPrefix(string(changed), before) || !strings.HasSuffix(string(changed), after) {
		t.Errorf("more than the provider is changed:\n%s", changed)
	}
	for _, bad := range []string{"", "{", "[]", `{"server": {}}`} {
		if _, err := config.WithProvider([]byte(bad), "docker", nil); err == nil {
			t.Errorf("%q has a provider", bad)
		}
	}
}
