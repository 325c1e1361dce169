package aws_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/awsclient/iam"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/aws"
)

const (
	region = "eu-central-1"
	prefix = "nstance/example/"
)

// draw is a source of randomness that is safe for concurrent use.
type draw struct {
	mu     sync.Mutex
	source *rand.ChaCha8
}

func (d *draw) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.source.Read(p)
}

func openSecrets(t *testing.T, c awsclient.Config, provider, prefix string, seed byte) (secrets.Secrets, error) {
	t.Helper()
	return secrets.Open(t.Context(), secrets.Config{
		Provider: provider, Prefix: prefix, Random: &draw{source: rand.NewChaCha8([32]byte{seed})}, Backends: aws.Backends(c),
	})
}

func must(t *testing.T, c awsclient.Config, provider string, seed byte) secrets.Secrets {
	t.Helper()
	s, err := openSecrets(t, c, provider, prefix, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newCloud returns a cloud with the policies for the cluster's secrets, in both services, and
// the one for a key named key.
func newCloud(t *testing.T, change func(*awstest.Config)) *awstest.Cloud {
	t.Helper()
	cfg := awstest.Config{Region: region, Seed: 1, Policies: awsclienttest.Rights(t, region, nil,
		iam.SectionKey, iam.SectionSecretsManager, iam.SectionParameterStore)}
	if change != nil {
		change(&cfg)
	}
	return awstest.New(cfg)
}

var errNoRole = errors.New("the machine tells of no role")
