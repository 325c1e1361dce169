package cli_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/object"
)

// TestUndeclaredTenant: no nonce and no identity is issued for a tenant that no shard's config
// declares, unless a config can't be read.
func TestUndeclaredTenant(t *testing.T) {
	c := newFixture(t)
	put := func(key, body string) {
		t.Helper()
		if _, err := c.store.Put(t.Context(), key, []byte(body), object.Precondition{}); err != nil {
			t.Fatal(err)
		}
	}
	text := read(t, "../../../examples/config.jsonc") // declares prod
	put("config/dev-1.jsonc", read(t, "../../../examples/dev/dev-1.jsonc"))
	put("applied/dev-1.jsonc", `// nstance {"epoch":3,"rev":1,"writer":"w"}`+"\n"+read(t, "../../../examples/dev/dev-1.jsonc"))
	put("config/us-1.jsonc", text)
	for _, command := range []string{"nonce", "register-operator"} {
		c.run("cluster", command, "--tenant", "prd").want(t, cli.ExitFailed,
			`tenant: "prd" is not declared in the config of any shard (dev-1, us-1): declare it under tenants there first, or use tenant default`)
	}
	if have := c.operators(); len(have) != 0 {
		t.Errorf("records %v", have)
	}
	c.run("cluster", "nonce", "--tenant", "prod").want(t, cli.ExitOK)
	c.run("cluster", "nonce").want(t, cli.ExitOK)
	put("config/us-1.jsonc", "{")
	c.run("cluster", "nonce", "--tenant", "prd").want(t, cli.ExitOK)
}
