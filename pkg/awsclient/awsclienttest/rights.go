package awsclienttest

import (
	"maps"
	"os"
	"testing"

	"github.com/nstance/nstance/pkg/awsclient/iam"
	"github.com/nstance/nstance/pkg/provider/aws/awstest/policy"
)

// The account and cluster in the policies of Rights.
const (
	Account = "123456789012"
	Cluster = "c"
)

// Rights returns the policies of the given sections of docs/aws-iam.json, with placeholders
// filled in for a region; values overrides defaults.
func Rights(t *testing.T, region string, values map[string]string, sections ...string) (out []policy.Policy) {
	t.Helper()
	fill := map[string]string{
		"account": Account, "agent_role_arn": "arn:aws:iam::" + Account + ":role/agent", "bucket": "bucket", "cluster_id": Cluster,
		"key_arn":     "arn:aws:secretsmanager:" + region + ":" + Account + ":secret:key-??????",
		"kms_key_arn": "arn:aws:kms:" + region + ":" + Account + ":key/1",
		"partition":   "aws", "region": region, "secret_prefix": "nstance/", "secret_region": region,
	}
	maps.Copy(fill, values)
	for _, section := range sections {
		text, err := iam.JSON(iam.Document(section))
		if err != nil {
			t.Fatal(err)
		}
		filled := os.Expand(string(text), func(name string) string {
			if _, ok := fill[name]; !ok {
				t.Fatalf("the policy %s has ${%s}, which no test fills in", section, name)
			}
			return fill[name]
		})
		p, err := policy.Parse([]byte(filled))
		if err != nil {
			t.Fatalf("policy %s: %v", section, err)
		}
		out = append(out, p)
	}
	return out
}
