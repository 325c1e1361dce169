package cli_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
)

// TestClusterCA: a CA is added, listed, shown and removed. A CA that was written to the bucket
// directly is refused, with its fingerprint, by all commands that open the cluster.
func TestClusterCA(t *testing.T) {
	c := newFixture(t)
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	type ca struct {
		SHA256 string
		Signs  bool
	}
	newCA := func(at time.Time) (path, fingerprint string) {
		next, err := pki.NewCA(pki.CAConfig{Cluster: clusterID, Key: key, Now: at, Random: rand.Reader})
		if err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(t.TempDir(), "next.crt")
		if err := os.WriteFile(path, pki.EncodeCertificate(next.Certificate()), 0o600); err != nil {
			t.Fatal(err)
		}
		return path, pki.Fingerprint(next.Certificate())
	}
	path, fingerprint := newCA(time.Now())
	old, _ := newCA(time.Now().AddDate(-11, 0, 0))

	c.run("cluster", "ca", "add", old).want(t, 1, "expired at")
	c.run("cluster", "ca", "add", filepath.Join(c.bucket, "none")).want(t, 2, "none")
	c.run("cluster", "ca", "add", os.DevNull).want(t, 2, "CA bundle")
	c.run("cluster", "ca", "remove", "ab").want(t, 2, "64 hexadecimal digits")
	c.run("cluster", "ca", "remove", fingerprint).want(t, 1, "no trusted CA")
	c.run("cluster", "ca", "add", path).want(t, 0)
	listed := decode[[]ca](t, c.run("cluster", "ca", "list", "-o", "json").want(t, 0).out)
	if len(listed) != 2 || !listed[0].Signs || listed[1].Signs || listed[1].SHA256 != fingerprint {
		t.Errorf("listed %v", listed)
	}
	if shown := c.run("cluster", "ca", "show").want(t, 0).out; shown != c.get("cluster/ca.crt") {
		t.Errorf("show: %s", shown)
	}
	c.run("cluster", "ca", "remove", listed[0].SHA256).want(t, 1, "signing CA")
	both := c.get("cluster/ca.crt")
	colons := strings.ToUpper(fingerprint[:2] + ":" + fingerprint[2:])
	c.run("cluster", "ca", "remove", colons).want(t, 0)
	if n := strings.Count(c.get("cluster/ca.crt"), "BEGIN"); n != 1 {
		t.Errorf("%d CAs, want 1", n)
	}
	if _, err := c.store.Put(t.Context(), "cluster/ca.crt", []byte(both), object.Precondition{}); err != nil {
		t.Fatal(err)
	}
	c.run("cluster", "ca", "list").want(t, 1, "cluster/ca.crt", fingerprint)
	c.run("cluster", "nonce").want(t, 1, "cluster/ca.crt", fingerprint)
}

func (c *fixture) get(key string) string {
	c.t.Helper()
	o, err := c.store.Get(c.t.Context(), key)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(o.Body)
}
