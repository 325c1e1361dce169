package aws_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/awsclient/iam"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/aws"
)

// TestRights: the policies allow the key and the secrets of the cluster, in either service,
// and no others.
func TestRights(t *testing.T) {
	const key = "0123456789abcdef0123456789abcdef"
	for provider, c := range map[string]struct {
		section   string
		statement string
		put       func(cloud *awstest.Cloud, name string) (arn string)
	}{
		secrets.ProviderSecretsManager: {iam.SectionSecretsManager, "Secrets", func(cloud *awstest.Cloud, name string) string {
			return cloud.Secrets.Put(name, key)
		}},
		secrets.ProviderParameterStore: {iam.SectionParameterStore, "Parameters", func(cloud *awstest.Cloud, name string) string {
			cloud.Parameters.Put("/"+name, key)
			return "arn:aws:ssm:" + region + ":" + awsclienttest.Account + ":parameter/" + name
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			cloud := newCloud(t, nil)
			own, other := c.put(cloud, "keys/own"), c.put(cloud, "keys/other")
			rights := awsclienttest.Rights(t, region, map[string]string{"key_arn": own, "secret_prefix": prefix}, iam.SectionKey, c.section)
			cloud.IAM.SetPolicies(rights...)
			client := awsclienttest.Serve(t, cloud, region)
			load := func(name string) error {
				_, err := secrets.LoadKey(t.Context(), secrets.KeySource{Provider: provider, Source: name}, aws.Sources(client))
				return err
			}
			if err := load(own); err != nil {
				t.Errorf("%s: its own key: %v", provider, err)
			}
			if err := load(other); !errors.Is(err, secrets.ErrKey) || !strings.Contains(err.Error(), "AccessDeniedException") {
				t.Errorf("%s: another key: %v, want that it is denied", provider, err)
			}
			s := must(t, client, provider, 1)
			_, created := s.Create(t.Context(), "ca", []byte("1"))
			replaced := s.Replace(t.Context(), "ca", []byte("2"))
			if got, err := s.Get(t.Context(), "ca"); errors.Join(created, replaced, err) != nil || string(got) != "2" {
				t.Errorf("%s: created %v, replaced %v, got %q, %v", provider, created, replaced, got, err)
			}
			foreign, err := openSecrets(t, client, provider, "nstance/other/", 1)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := foreign.Get(t.Context(), "ca"); err == nil || !strings.Contains(err.Error(), "AccessDeniedException") {
				t.Errorf("%s: another cluster's secret: %v, want that it is denied", provider, err)
			}
			for id, needs := range map[string]func() error{
				"Key":       func() error { return load(own) },
				c.statement: func() error { _, err := s.Get(t.Context(), "ca"); return err },
			} {
				cloud.IAM.SetPolicies(rights[0].Without(id), rights[1].Without(id))
				if needs() == nil {
					t.Errorf("%s: nothing needs the statement %s", provider, id)
				}
			}
		})
	}
}
