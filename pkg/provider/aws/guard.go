package aws

import (
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/nstance/nstance/pkg/awscall"
	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// mutation makes a call one that changes something: there is one attempt, before which
// the guard is asked.
func mutation(o *ec2.Options) {
	o.Retryer = awsclient.OneAttempt()
	o.APIOptions = append(o.APIOptions[:len(o.APIOptions):len(o.APIOptions)], awsclient.Before(provider.Permit))
}

// attempt is the same for calls that are not the SDK's.
func attempt() awscall.Attempts { return awscall.Attempts{Once: true, Permit: provider.Permit} }
