package server_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/server"
)

const sealedByEnv = `{ "encryption_key": { "provider": "env", "source": "NSTANCE_ENCRYPTION_KEY" } }`

// secretsAre replaces the config's secrets section.
func secretsAre(text string) func(*site) {
	return func(s *site) {
		s.put("config/"+shardID+".jsonc", strings.Replace(s.text(), sealedByEnv, text, 1))
	}
}

// TestSecretsAtAWS: two servers of a shard agree on one CA that is stored at AWS, and the bucket
// has no secrets.
func TestSecretsAtAWS(t *testing.T) {
	for _, provider := range []string{secrets.ProviderSecretsManager, secrets.ProviderParameterStore} {
		t.Run(provider, simulation(func(t *testing.T) {
			cloud := awstest.New(awstest.Config{Region: "eu-central-1"})
			calls := awsclienttest.Serve(t, cloud, "eu-central-1")
			s := newSite(t, secretsAre(`{ "provider": "`+provider+`" }`))
			at := func(cfg *server.Config) { cfg.AWS = calls }
			first := s.start(at)
			first.awaitLeading()
			if keys := s.keys("cluster/secret/"); len(keys) != 0 {
				t.Errorf("the bucket has %v", keys)
			}
			first.ends()
			made := len(cloud.Calls("CreateSecret")) + len(cloud.Calls("PutParameter"))
			second := s.start(at, func(cfg *server.Config) { cfg.ID = "b" })
			second.awaitLeading()
			if again := len(cloud.Calls("CreateSecret")) + len(cloud.Calls("PutParameter")); made != 3 || again != made {
				t.Errorf("%d secrets were made at first, %d in all; want 3, once", made, again)
			}
			second.ends()
		}))
	}
}

// TestSecretsElsewhere: shards of all regions find the cluster's secrets in the configured
// region.
func TestSecretsElsewhere(t *testing.T) {
	simulated(t, func(t *testing.T) {
		cloud := awstest.New(awstest.Config{Region: "eu-central-1"})
		calls := awsclienttest.Serve(t, cloud, "elsewhere")
		s := newSite(t, secretsAre(`{ "provider": "aws-secrets-manager", "region": "eu-central-1" }`))
		p := s.start(func(cfg *server.Config) { cfg.AWS = calls })
		p.awaitLeading()
		if n := len(cloud.Calls("CreateSecret")); n != 3 {
			t.Errorf("%d secrets were made where the config says, want 3", n)
		}
		p.ends()
	})
}

// TestKeyAtAWS: secrets in the bucket are opened with a key at AWS.
func TestKeyAtAWS(t *testing.T) {
	simulated(t, func(t *testing.T) {
		cloud := awstest.New(awstest.Config{Region: "eu-central-1"})
		arn := cloud.Secrets.Put("nstance/key", encryptionKey)
		calls := awsclienttest.Serve(t, cloud, "elsewhere") // the ARN has the region
		s := newSite(t, secretsAre(`{ "encryption_key": { "provider": "aws-secrets-manager", "source": "`+arn+`" } }`))
		p := s.start(func(cfg *server.Config) { cfg.AWS = calls })
		p.awaitLeading()
		if s.trust().ClusterID != clusterID { // opened with the same key from the environment
			t.Error("the trust is another cluster's")
		}
		p.ends()
	})
}
