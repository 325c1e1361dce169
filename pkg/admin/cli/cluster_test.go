package cli_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/secrets"
)

func (c *fixture) verify(token string) nonce.Claims {
	c.t.Helper()
	claims, err := nonce.Verify(pki.PublicKey(c.trust.NonceKey), strings.TrimSpace(token),
		nonce.Want{Kind: nonce.KindOperator, ClusterID: clusterID}, time.Now())
	if err != nil {
		c.t.Fatalf("%q: %v", token, err)
	}
	return claims
}

func TestClusterNonce(t *testing.T) {
	c := newFixture(t)
	claims := c.verify(c.run("cluster", "nonce").want(t, cli.ExitOK).out)
	id, err := fleet.ParseID(claims.ID)
	if err != nil || id.Kind() != fleet.OperatorKind || claims.Tenant != "default" || claims.Shard != "" {
		t.Errorf("claims %+v, %v", claims, err)
	}
	if life := claims.ExpiresAt.Sub(claims.NotBefore); life != 3*time.Hour {
		t.Errorf("lifetime %s, want 3h", life)
	}
	claims = c.verify(c.run("cluster", "nonce", "--tenant", "prod", "--expiry", "1m", "--cluster-id", clusterID).want(t, cli.ExitOK).out)
	if claims.Tenant != "prod" || claims.ExpiresAt.Sub(claims.NotBefore) != time.Minute {
		t.Errorf("claims %+v", claims)
	}

	// Unlike that of other commands, its --output is a file, to which the environment's
	// NSTANCE_ADMIN_OUTPUT does not apply.
	path := filepath.Join(t.TempDir(), "nonce.jwt")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 5000)), 0o644); err != nil {
		t.Fatal(err)
	}
	c.env["NSTANCE_ADMIN_OUTPUT"] = "json"
	for _, flag := range []string{"-o", "--output"} {
		if r := c.run("cluster", "nonce", flag, path).want(t, cli.ExitOK); r.out != "" {
			t.Errorf("%s: it printed %q", flag, r.out)
		}
		c.verify(read(t, path))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	c.verify(c.run("cluster", "nonce", "-o", "-").want(t, cli.ExitOK).out)
	c.run("cluster", "nonce", "-o", filepath.Join(t.TempDir(), "no", "such")).want(t, cli.ExitFailed, "write the nonce")
}

func TestClusterNonceRefusals(t *testing.T) {
	c := newFixture(t)
	for _, args := range [][]string{
		{"--tenant", "Prod"}, {"--expiry", "0s"}, {"--expiry", "-1h"}, {"--expiry", "1000h"}, {"--expiry", "soon"}, {"more"},
		{"--storage-bucket", ""},
	} {
		r := c.run(append([]string{"cluster", "nonce"}, args...)...).want(t, cli.ExitUsage)
		if r.out != "" || !strings.HasPrefix(r.errOut, "nstance-admin: ") || strings.Count(r.errOut, "\n") != 1 {
			t.Errorf("%v: %q, %q", args, r.out, r.errOut)
		}
	}
	c.run("cluster", "nonce", "--cluster-id", "other").want(t, cli.ExitFailed, `"other"`, `"example"`)
	c.run("cluster", "nonce", "--storage-provider", "ftp").want(t, cli.ExitFailed, `storage-provider: "ftp"`)
	c.run("cluster", "nonce", "--key-source", "NOWHERE").want(t, cli.ExitFailed, "env NOWHERE: the environment variable is not set")
	c.env["NSTANCE_ENCRYPTION_KEY"] = "short"
	c.run("cluster", "nonce").want(t, cli.ExitFailed, "32")
	c.env["NSTANCE_ENCRYPTION_KEY"] = strings.ToUpper(encryptionKey)
	c.run("cluster", "nonce").want(t, cli.ExitFailed, "decrypt")
	c.env["NSTANCE_ENCRYPTION_KEY"] = encryptionKey
	c.env["NSTANCE_ADMIN_STORAGE_BUCKET"] = t.TempDir()
	c.run("cluster", "nonce").want(t, cli.ExitFailed, "start a server first")
}

func TestRegisterOperator(t *testing.T) {
	c := newFixture(t)
	folder := c.env["NSTANCE_ADMIN_IDENTITY_DIR"]
	c.run("cluster", "register-operator", "--tenant", "prod").want(t, cli.ExitOK)
	pair, err := pki.ParseKeypair([]byte(read(t, filepath.Join(folder, "identity.crt"))),
		[]byte(read(t, filepath.Join(folder, "identity.key"))))
	if err != nil {
		t.Fatal(err)
	}
	caller, err := pki.ParseCaller(pair.Certificate(), clusterID)
	if err != nil || caller.Role != pki.RoleOperator || caller.Tenant != "prod" {
		t.Errorf("identity of %+v, %v", caller, err)
	}
	if life := pki.Life(pair.Certificate()); life != 90*24*time.Hour {
		t.Errorf("the certificate's lifetime is %s, want 90 days", life)
	}
	if read(t, filepath.Join(folder, "ca.crt")) != string(c.trust.Bundle.PEM()) {
		t.Error("ca.crt is not the cluster's")
	}
	for name, mode := range map[string]os.FileMode{"identity.key": 0o600, "": 0o700} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	// The record has the key that a server would use.
	id := fleet.InstanceID(caller.ID)
	if have := c.operators(); len(have) != 1 || have[0] != "cluster/operator/prod."+id.StorageKey()+".json" {
		t.Errorf("records %v", have)
	}

	// No file of an identity is ever overwritten, and a refused command records no operator.
	c.run("cluster", "register-operator").want(t, cli.ExitFailed, "identity.key", "never overwritten")
	if err := os.Remove(filepath.Join(folder, "identity.key")); err != nil {
		t.Fatal(err)
	}
	crt := read(t, filepath.Join(folder, "identity.crt"))
	c.run("cluster", "register-operator").want(t, cli.ExitFailed, "identity.crt", "never overwritten")
	if read(t, filepath.Join(folder, "identity.crt")) != crt {
		t.Error("the certificate was overwritten")
	}
	other := newFixture(t)
	if err := os.Remove(filepath.Join(folder, "identity.crt")); err != nil {
		t.Fatal(err)
	}
	other.run("cluster", "register-operator", "--output-dir", folder).want(t, cli.ExitFailed, "another cluster")
	if have := append(c.operators(), other.operators()...); len(have) != 1 {
		t.Errorf("refusals recorded operators: %v", have)
	}
	// The ca.crt of the same cluster is accepted.
	r := c.run("cluster", "register-operator", "-o", "json").want(t, cli.ExitOK)
	if v := decode[map[string]string](t, r.out); v["tenant"] != "default" || v["identity_dir"] != folder || v["id"] == "" {
		t.Errorf("output %v", v)
	}
}

// TestFailedRegisterOperator: if the identity can't be written, no operator is recorded.
func TestFailedRegisterOperator(t *testing.T) {
	c := newFixture(t)
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.run("cluster", "register-operator", "--output-dir", filepath.Join(blocked, "identity")).want(t, cli.ExitFailed, "identity folder")
	if have := c.operators(); len(have) != 0 {
		t.Errorf("records %v, want none", have)
	}
}

// TestSecretPut: a secret is sealed, can be replaced, and is never one of the cluster's own
// keys.
func TestSecretPut(t *testing.T) {
	c := newFixture(t)
	file := filepath.Join(t.TempDir(), "value")
	for _, value := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		c.run("cluster", "secret", "put", "registry-login", file).want(t, cli.ExitOK)
		o, err := c.store.Get(t.Context(), "cluster/secret/registry-login")
		if err != nil || strings.Contains(string(o.Body), value) {
			t.Errorf("stored %q, %v", o.Body, err)
		}
		sealed, err := secrets.Open(t.Context(), secrets.Config{
			Provider: "object-storage", Prefix: "cluster/secret/", Key: secrets.KeySource{Provider: "env", Source: "K"},
			Store: c.store, Random: rand.Reader, Sources: secrets.LocalSources(func(string) string { return encryptionKey }),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sealed.Get(t.Context(), "registry-login"); err != nil || string(got) != value {
			t.Errorf("the secret is %q, %v; want %q", got, err, value)
		}
	}
	for _, name := range []string{"ca.key", "registration-nonce.key", "CA.key", "../x", ""} {
		c.run("cluster", "secret", "put", name, file).want(t, cli.ExitUsage)
	}
	if err := os.WriteFile(file, make([]byte, secrets.MaxValue+1), 0o600); err != nil {
		t.Fatal(err)
	}
	c.run("cluster", "secret", "put", "registry-login", file).want(t, cli.ExitUsage, "bytes")
	c.run("cluster", "secret", "put", "registry-login", file+"-none").want(t, cli.ExitUsage, "no such file")
}
