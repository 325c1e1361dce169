package aws

import (
	"fmt"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/provider"
)

// hidden are the fields of a launch that are the provider's, and why.
func hidden() map[string]string {
	const one = "the provider sets it: each instance is a launch of its own"
	return map[string]string{
		"ClientToken":           "the provider sets it: it is made of the instance's id and subnet",
		"MinCount":              one,
		"MaxCount":              one,
		"DryRun":                "the provider sets it: want no such field",
		"SubnetId":              "the provider sets it: want a subnet_pool",
		"InstanceType":          "the provider sets it: want instance_type beside args",
		"UserData":              "the provider sets it: want userdata beside args",
		"DisableApiTermination": "the provider has to be able to end what it made: want no such field",
	}
}

// CheckArgs implements provider.ArgsChecker.
func (cfg Config) CheckArgs(spec provider.Spec) error {
	_, err := decodeLaunch(spec.Args)
	return err
}

// CheckArgs implements provider.ArgsChecker.
func (p *Provider) CheckArgs(spec provider.Spec) error { return p.cfg.CheckArgs(spec) }

// decodeLaunch reads args as a launch of which the instance's own part is missing. The
// error lists all that is wrong with them.
func decodeLaunch(args map[string]any) (*ec2.RunInstancesInput, error) {
	in := &ec2.RunInstancesInput{}
	wrong := decodeArgs(args, in, hidden())
	if len(wrong) > 0 {
		return nil, wrong // what could not be read can't be judged
	}
	checkImage(&wrong, in)
	checkMarket(&wrong, in.InstanceMarketOptions)
	checkNetwork(&wrong, in)
	checkTagSpecs(&wrong, in.TagSpecifications)
	return in, wrong.Err()
}

func checkImage(wrong *provider.FieldErrors, in *ec2.RunInstancesInput) {
	if sdk.ToString(in.ImageId) == "" && in.LaunchTemplate == nil {
		wrong.Addf("args.ImageId", "required: want the id of an image, or args.LaunchTemplate")
	}
	if id := sdk.ToString(in.ImageId); strings.HasPrefix(id, "resolve:") {
		wrong.Addf("args.ImageId", "%.80q would have EC2 read a parameter, which servers have no right to: want the id of an image", id)
	}
}

// checkMarket: EC2 starts an instance of a persistent request again after it was ended,
// and nobody here would know the new one.
func checkMarket(wrong *provider.FieldErrors, market *types.InstanceMarketOptionsRequest) {
	if market == nil || market.SpotOptions == nil {
		return
	}
	if kind := market.SpotOptions.SpotInstanceType; kind != "" && kind != types.SpotInstanceTypeOneTime {
		wrong.Addf("args.InstanceMarketOptions.SpotOptions.SpotInstanceType",
			"%q is not valid: EC2 would replace the instance itself; want %s", kind, types.SpotInstanceTypeOneTime)
	}
}

// checkNetwork: what is about the network belongs to the instance, or else to its
// interfaces, of which the first gets the subnet.
func checkNetwork(wrong *provider.FieldErrors, in *ec2.RunInstancesInput) {
	if len(in.NetworkInterfaces) == 0 {
		return
	}
	const instead = "not beside args.NetworkInterfaces: want it there, on the interface"
	for name, given := range map[string]bool{
		"SecurityGroupIds": len(in.SecurityGroupIds) > 0, "SecurityGroups": len(in.SecurityGroups) > 0,
		"PrivateIpAddress": in.PrivateIpAddress != nil, "Ipv6Addresses": len(in.Ipv6Addresses) > 0,
		"Ipv6AddressCount": in.Ipv6AddressCount != nil,
	} {
		if given {
			wrong.Addf("args."+name, instead)
		}
	}
	primaries := 0
	for n, one := range in.NetworkInterfaces {
		path := fmt.Sprintf("args.NetworkInterfaces[%d]", n)
		if one.DeviceIndex == nil {
			wrong.Addf(path+".DeviceIndex", "required: want 0 for the first interface")
		}
		if one.NetworkInterfaceId != nil {
			wrong.Addf(path+".NetworkInterfaceId", "%.80q can't be attached to every instance: want no such field", *one.NetworkInterfaceId)
		}
		if !first(one) {
			continue
		}
		primaries++
		if one.SubnetId != nil {
			wrong.Addf(path+".SubnetId", "%s", hidden()["SubnetId"])
		}
	}
	if primaries != 1 {
		wrong.Addf("args.NetworkInterfaces", "%d of them have DeviceIndex 0: want 1, which gets the subnet", primaries)
	}
}

// first reports whether an interface is the one that every instance has.
func first(i types.InstanceNetworkInterfaceSpecification) bool {
	return i.DeviceIndex != nil && *i.DeviceIndex == 0 && sdk.ToInt32(i.NetworkCardIndex) == 0
}

func checkTagSpecs(wrong *provider.FieldErrors, specs []types.TagSpecification) {
	seen := map[types.ResourceType]bool{}
	for n, spec := range specs {
		path := fmt.Sprintf("args.TagSpecifications[%d]", n)
		if spec.ResourceType == "" {
			wrong.Addf(path+".ResourceType", "required: want instance, volume or network-interface")
		}
		if seen[spec.ResourceType] {
			wrong.Addf(path+".ResourceType", "%.80q is there twice: want one entry for each type", spec.ResourceType)
		}
		seen[spec.ResourceType] = true
		for i, tag := range spec.Tags {
			if problem := tagProblem(sdk.ToString(tag.Key), sdk.ToString(tag.Value)); problem != "" {
				wrong.Addf(fmt.Sprintf("%s.Tags[%d]", path, i), "%s", problem)
			} else if strings.HasPrefix(*tag.Key, tagPrefix) {
				wrong.Addf(fmt.Sprintf("%s.Tags[%d].Key", path, i),
					"%.80q is not valid: tags that begin with %s are the provider's", *tag.Key, tagPrefix)
			}
		}
	}
}
