package admin_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/object/dir"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/aws"
)

// TestSecretsInAWS: a cluster whose secrets are in AWS is opened with only its ID.
func TestSecretsInAWS(t *testing.T) {
	for provider, name := range map[string]string{
		secrets.ProviderSecretsManager: "nstance/example/login", secrets.ProviderParameterStore: "/nstance/example/login",
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := awsclienttest.Serve(t, awstest.New(awstest.Config{Region: "eu-central-1"}), "eu-central-1")
			bucket := t.TempDir()
			store, err := dir.New(dir.Config{Root: bucket})
			if err != nil {
				t.Fatal(err)
			}
			stored, err := secrets.Open(t.Context(), secrets.Config{
				Provider: provider, Prefix: "nstance/example/", Random: rand.Reader, Backends: aws.Backends(calls),
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := secrets.Bootstrap(t.Context(), secrets.BootstrapConfig{
				ClusterID: "example", Store: store, Secrets: stored, Now: time.Now, Random: rand.Reader,
			}); err != nil {
				t.Fatal(err)
			}
			at := admin.StorageConfig{Provider: "dir", Bucket: bucket, SecretsProvider: provider, AWS: calls}
			none := func(string) string { return "" }
			_, err = admin.OpenCluster(t.Context(), at, none, time.Now, rand.Reader)
			if err == nil || !strings.Contains(err.Error(), "cluster's ID") {
				t.Errorf("%s, without a prefix: %v", provider, err)
			}
			at.ClusterID = "example"
			c, err := admin.OpenCluster(t.Context(), at, none, time.Now, rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.PutSecret(t.Context(), "login", []byte("hunter2")); err != nil {
				t.Fatal(err)
			}
			if got, err := stored.Get(t.Context(), "login"); err != nil || string(got) != "hunter2" {
				t.Errorf("%s: %q, %v", provider, got, err)
			}
			if _, err := c.ResealSecrets(t.Context()); err == nil || !strings.Contains(err.Error(), "encrypted by KMS") {
				t.Errorf("%s: reseal: %v, want a refusal", provider, err)
			}
			if got, err := aws.Sources(calls)[provider](t.Context(), name); err != nil || len(got) == 0 {
				t.Errorf("%s has no %s: %v", provider, name, err)
			}
		})
	}
}
