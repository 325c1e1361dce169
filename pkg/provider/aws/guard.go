package aws

import (
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// mutation marks a call as one that changes something: one attempt, guarded by provider.Permit.
func mutation(o *ec2.Options) { awsclient.Once(&o.Retryer, &o.APIOptions, provider.Permit) }

// change is mutation for Elastic Load Balancing.
func change(o *elb.Options) { awsclient.Once(&o.Retryer, &o.APIOptions, provider.Permit) }
