package server_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/server"
)

const sealedByEnv = `{ "encryption_key": { "provider": "env", "source": "NSTANCE_ENCRYPTION_KEY" } }`

// secretsAre replaces where the config has the secrets.
func secretsAre(text string) func(*site) {
	return func(s *site) {
		s.put("config/"+shardID+".jsonc", strings.Replace(s.text(), sealedByEnv, text, 1))
	}
}

// TestSecretsAtAWS: two servers of a shard agree on one CA that is kept at AWS, and
// nothing that is secret is in the bucket.
func TestSecretsAtAWS(t *testing.T) {
	for _, provider := range []string{secrets.ProviderSecretsManager, secrets.ProviderParameterStore} {
		t.Run(provider, simulation(func(t *testing.T) {
			cloud := awsfake.New(awsfake.Config{Region: "eu-central-1"})
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
			if again := len(cloud.Calls("CreateSecret")) + len(cloud.Calls("PutParameter")); made != 2 || again != made {
				t.Errorf("%d secrets were made at first, %d in all; want 2, once", made, again)
			}
			second.ends()
		}))
	}
}

// TestSecretsElsewhere: shards of all regions find the cluster's secrets in the one that the
// config names.
func TestSecretsElsewhere(t *testing.T) {
	simulated(t, func(t *testing.T) {
		cloud := awsfake.New(awsfake.Config{Region: "eu-central-1"})
		calls := awsclienttest.Serve(t, cloud, "elsewhere")
		s := newSite(t, secretsAre(`{ "provider": "aws-secrets-manager", "region": "eu-central-1" }`))
		p := s.start(func(cfg *server.Config) { cfg.AWS = calls })
		p.awaitLeading()
		if n := len(cloud.Calls("CreateSecret")); n != 2 {
			t.Errorf("%d secrets were made where the config says, want 2", n)
		}
		p.ends()
	})
}

// TestKeyAtAWS: what is sealed in the bucket opens with a key that is at AWS.
func TestKeyAtAWS(t *testing.T) {
	simulated(t, func(t *testing.T) {
		cloud := awsfake.New(awsfake.Config{Region: "eu-central-1"})
		arn := cloud.Secrets.Put("nstance/key", encryptionKey)
		calls := awsclienttest.Serve(t, cloud, "elsewhere") // the ARN says where
		s := newSite(t, secretsAre(`{ "encryption_key": { "provider": "aws-secrets-manager", "source": "`+arn+`" } }`))
		p := s.start(func(cfg *server.Config) { cfg.AWS = calls })
		p.awaitLeading()
		if s.trust().ClusterID != clusterID { // which is opened with the same key from the environment
			t.Error("the trust is another cluster's")
		}
		p.ends()
	})
}
