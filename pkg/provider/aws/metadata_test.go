package aws_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// TestMetadata: the SDK understands the double's metadata.
func TestMetadata(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "")
	synctest.Test(t, func(t *testing.T) {
		cfg := cloudConfig(t)
		cfg.Role, cfg.RoleLife = "server", time.Hour
		cloud := awstest.New(cfg)
		id := cloud.AddMachine(large, nil, false)
		client := imds.New(imds.Options{HTTPClient: serve(t, cloud.Metadata(id))})
		here, err := client.GetRegion(t.Context(), nil)
		if err != nil || here.Region != region {
			t.Errorf("the region is %+v, %v", here, err)
		}
		document, err := client.GetInstanceIdentityDocument(t.Context(), nil)
		if err != nil || document.InstanceID != id || document.AccountID != account || document.ImageID != image {
			t.Errorf("the document is %+v, %v", document, err)
		}
		role := ec2rolecreds.New(func(o *ec2rolecreds.Options) { o.Client = client })
		first, err := role.Retrieve(t.Context())
		if err != nil || !first.HasKeys() || !first.CanExpire || !first.Expires.After(time.Now()) {
			t.Errorf("the keys are %+v, %v", first, err)
		}
		time.Sleep(time.Hour)
		second, err := role.Retrieve(t.Context())
		if err != nil || second.AccessKeyID == first.AccessKeyID || !second.Expires.After(time.Now()) {
			t.Errorf("an hour later they are %+v, %v", second, err)
		}
	})
}
