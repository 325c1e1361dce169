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

// maxUserdata is how much userdata EC2 takes, in bytes before they are encoded.
const maxUserdata = 16 << 10

var subnetID = regexp.MustCompile(`^subnet-([0-9a-f]{8}|[0-9a-f]{17})$`)

// launch is the call that makes the instance of a spec. It is the same, byte by byte,
// whenever it is made of the same spec.
func launch(scope provider.Scope, spec provider.Spec) (*ec2.RunInstancesInput, error) {
	if err := spec.Check(scope); err != nil {
		return nil, err
	}
	in, err := decodeLaunch(spec.Args)
	if err != nil {
		return nil, err
	}
	switch {
	case !subnetID.MatchString(spec.Subnet):
		return nil, fmt.Errorf("%w: subnet %.80q is not valid: want the id of one, such as subnet-0123456789abcdef0",
			provider.ErrInvalid, spec.Subnet)
	case spec.Attempt < 0 || spec.Attempt > maxAttempt:
		return nil, fmt.Errorf("%w: attempt %d: want 0 to %d", provider.ErrInvalid, spec.Attempt, maxAttempt)
	case spec.InstanceType == "" && in.LaunchTemplate == nil:
		return nil, fmt.Errorf("%w: instance_type: required, unless args.LaunchTemplate has it", provider.ErrInvalid)
	case len(spec.Userdata) > maxUserdata:
		return nil, fmt.Errorf("%w: userdata has %d bytes: EC2 takes at most %d; compress it, or have it load the rest",
			provider.ErrInvalid, len(spec.Userdata), maxUserdata)
	}
	in.MinCount, in.MaxCount = sdk.Int32(1), sdk.Int32(1)
	in.ClientToken = sdk.String(clientToken(spec))
	in.InstanceType = types.InstanceType(spec.InstanceType)
	if len(spec.Userdata) > 0 {
		in.UserData = sdk.String(base64.StdEncoding.EncodeToString(spec.Userdata))
	}
	requireIMDSv2(in)
	placeIn(spec.Subnet, in)
	in.TagSpecifications, err = tagged(in.TagSpecifications, spec)
	return in, err
}

// maxAttempt is the highest whose token fits into the 64 characters that EC2 takes: 29 of
// the id, 24 of the subnet at most, and two hyphens.
const maxAttempt = 999_999_999

// clientToken is the same for the same attempt at an instance in the same subnet. EC2 keeps
// the token of a launch that it refused for lack of capacity, and takes no other launch
// under it: the next attempt has a token of its own.
func clientToken(spec provider.Spec) string {
	return string(spec.ID) + "-" + spec.Subnet + "-" + strconv.Itoa(spec.Attempt)
}

// requireIMDSv2 has the metadata service want a session, unless args say otherwise:
// without one, any program that can be made to fetch a URL reads the role's keys.
func requireIMDSv2(in *ec2.RunInstancesInput) {
	if in.MetadataOptions == nil {
		in.MetadataOptions = &types.InstanceMetadataOptionsRequest{}
	}
	if in.MetadataOptions.HttpTokens == "" {
		in.MetadataOptions.HttpTokens = types.HttpTokensStateRequired
	}
}

// placeIn puts the subnet where EC2 wants it: on the first interface, if args have
// interfaces.
func placeIn(subnet string, in *ec2.RunInstancesInput) {
	n := slices.IndexFunc(in.NetworkInterfaces, first)
	if n < 0 {
		in.SubnetId = &subnet
		return
	}
	in.NetworkInterfaces[n].SubnetId = &subnet
}
