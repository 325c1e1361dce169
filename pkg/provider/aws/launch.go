package aws

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/provider"
)

// maxUserdata is EC2's limit on userdata, in bytes before encoding.
const maxUserdata = 16 << 10

var subnetID = regexp.MustCompile(`^subnet-([0-9a-f]{8}|[0-9a-f]{17})$`)

// launch returns the RunInstances request of a spec. It is deterministic, byte by byte.
func launch(scope provider.Scope, spec provider.Spec) (*ec2.RunInstancesInput, error) {
	if err := spec.Check(scope); err != nil {
		return nil, err
	}
	in, err := decodeLaunch(spec)
	if err != nil {
		return nil, err
	}
	switch {
	case !subnetID.MatchString(spec.Subnet):
		return nil, fmt.Errorf("%w: subnet %.80q is not valid: want a subnet ID such as subnet-0123456789abcdef0",
			provider.ErrInvalid, spec.Subnet)
	case spec.Attempt < 0 || spec.Attempt > maxAttempt:
		return nil, fmt.Errorf("%w: attempt %d: want 0 to %d", provider.ErrInvalid, spec.Attempt, maxAttempt)
	case spec.InstanceType == "" && in.LaunchTemplate == nil:
		return nil, fmt.Errorf("%w: instance_type: required unless args.LaunchTemplate sets it", provider.ErrInvalid)
	}
	in.MinCount, in.MaxCount = sdk.Int32(1), sdk.Int32(1)
	in.ClientToken = sdk.String(clientToken(spec))
	in.InstanceType = types.InstanceType(spec.InstanceType)
	if len(spec.Userdata) > 0 {
		in.UserData = sdk.String(base64.StdEncoding.EncodeToString(spec.Userdata))
	}
	guardMetadata(in)
	placeIn(spec.Subnet, in)
	in.TagSpecifications, err = tagged(in.TagSpecifications, spec)
	return in, err
}

// maxAttempt is the highest attempt whose token fits EC2's 64 characters: 29 for the ID, at
// most 24 for the subnet, and two hyphens.
const maxAttempt = 999_999_999

// clientToken returns the idempotency token of an attempt at an instance in a subnet. EC2 keeps
// the token of a launch refused for lack of capacity and accepts no other launch with it, so
// the next attempt has another token.
func clientToken(spec provider.Spec) string {
	return string(spec.ID) + "-" + spec.Subnet + "-" + strconv.Itoa(spec.Attempt)
}

// guardMetadata requires metadata sessions (IMDSv2) and a hop limit of 1 unless args say
// otherwise. Without sessions, any program that can be made to fetch a URL can read the role's
// keys; with another hop, any container with its own network can.
func guardMetadata(in *ec2.RunInstancesInput) {
	if in.MetadataOptions == nil {
		in.MetadataOptions = &types.InstanceMetadataOptionsRequest{}
	}
	if in.MetadataOptions.HttpTokens == "" {
		in.MetadataOptions.HttpTokens = types.HttpTokensStateRequired
	}
	if in.MetadataOptions.HttpPutResponseHopLimit == nil {
		in.MetadataOptions.HttpPutResponseHopLimit = sdk.Int32(1)
	}
}

// placeIn sets the subnet: on the first interface, if args have interfaces.
func placeIn(subnet string, in *ec2.RunInstancesInput) {
	n := slices.IndexFunc(in.NetworkInterfaces, first)
	if n < 0 {
		in.SubnetId = &subnet
		return
	}
	in.NetworkInterfaces[n].SubnetId = &subnet
}
