package awsclient_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/awsclient"
)

func TestPartitionOf(t *testing.T) {
	for region, want := range map[string]string{
		"eu-central-1": "aws", "ap-southeast-7": "aws", "us-gov-west-1": "aws-us-gov", "cn-north-1": "aws-cn", "eusc-de-east-1": "aws-eusc",
		"us-iso-east-1": "aws-iso", "us-isob-east-1": "aws-iso-b", "eu-isoe-west-1": "aws-iso-e", "us-isof-south-1": "aws-iso-f",
		"": "", "moon-base-1": "", "eu-central-1.evil": "", "eu-central": "", "EU-CENTRAL-1": "",
	} {
		if p, ok := awsclient.PartitionOf(region); p.ID != want || ok != (want != "") {
			t.Errorf("%q is of %q, %v; want %q", region, p.ID, ok, want)
		}
	}
}
