package cli_test

import (
	"strings"
	"testing"
)

// TestSecretReseal: everything that the old key sealed is sealed with the new one. Only after
// that the command reports that nothing uses the old key.
func TestSecretReseal(t *testing.T) {
	c := newFixture(t)
	if err := c.putSecret("registry-login", "hunter2"); err != nil {
		t.Fatal(err)
	}
	c.run("cluster", "secret", "reseal").want(t, 2, "--old-key")
	c.env["OLD_KEY"], c.env["NSTANCE_ENCRYPTION_KEY"] = encryptionKey, "q7Lw0ZsXv4TnKb9RyMcJ2hGdPfA6uEi3"
	c.run("cluster", "nonce").want(t, 1, "old_encryption_keys")
	for _, bad := range []string{"OLD_KEY", "env:", "vault:x", ":"} {
		c.run("cluster", "secret", "reseal", "--old-key", bad).want(t, 2, "--old-key", "want env:VARIABLE")
	}
	c.run("cluster", "secret", "reseal", "--old-key", "env:NONE").want(t, 1, "old_encryption_keys[0]", "env NONE")
	c.run("cluster", "nonce", "--old-key", "env:OLD_KEY").want(t, 0)
	r := c.run("cluster", "secret", "reseal", "--old-key", "env:OLD_KEY", "-o", "json").want(t, 0, "nothing uses the old key")
	rows := decode[[]struct{ Name, State string }](t, r.out)
	if len(rows) != 4 {
		t.Errorf("resealed %v", rows)
	}
	for _, row := range rows {
		if row.State != "resealed" {
			t.Errorf("%s is %s", row.Name, row.State)
		}
	}
	c.run("cluster", "nonce").want(t, 0)

	c.env["NSTANCE_ADMIN_OLD_KEYS"] = "env:OLD_KEY"
	if r := c.run("cluster", "secret", "reseal").want(t, 0, "nothing uses the old key"); strings.Contains(r.out, "resealed") {
		t.Errorf("again: %s", r.out)
	}
	c.env["NSTANCE_ADMIN_SECRETS_PREFIX"] = "x/"
	c.run("cluster", "secret", "reseal").want(t, 1)
}

func (c *fixture) putSecret(name, value string) error {
	c.t.Helper()
	return c.secrets.Replace(c.t.Context(), name, []byte(value))
}
