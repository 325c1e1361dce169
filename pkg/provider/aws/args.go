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
	checkTemplate(&wrong, in.LaunchTemplate)
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

func checkTemplate(wrong *provider.FieldErrors, t *types.LaunchTemplateSpecification) {
	if t != nil && (sdk.ToString(t.LaunchTemplateId) == "") == (sdk.ToString(t.LaunchTemplateName) == "") {
		wrong.Addf("args.LaunchTemplate", "want LaunchTemplateId or LaunchTemplateName, one of them")
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
	if what := market.SpotOptions.InstanceInterruptionBehavior; what != "" && what != types.InstanceInterruptionBehaviorTerminate {
		wrong.Addf("args.InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior",
			"%q is not valid: it takes a persistent request; want %s", what, types.InstanceInterruptionBehaviorTerminate)
	}
}

// checkNetwork: what is about the network belongs to the instance, or else to its
// interfaces, of which the first gets the subnet. No address can be that of every
// instance.
func checkNetwork(wrong *provider.FieldErrors, in *ec2.RunInstancesInput) {
	given := map[string]bool{
		"SecurityGroupIds": len(in.SecurityGroupIds) > 0, "SecurityGroups": len(in.SecurityGroups) > 0,
		"PrivateIpAddress": in.PrivateIpAddress != nil, "Ipv6Addresses": len(in.Ipv6Addresses) > 0,
		"Ipv6AddressCount": in.Ipv6AddressCount != nil,
	}
	reasons := map[string]string{
		"SecurityGroups":   "EC2 takes no names beside a subnet: want SecurityGroupIds",
		"PrivateIpAddress": oneAddress, "Ipv6Addresses": oneAddress,
	}
	if len(in.NetworkInterfaces) > 0 {
		for name := range given {
			reasons[name] = "not beside args.NetworkInterfaces: want it there, on the interface"
		}
	}
	for name, reason := range reasons {
		if given[name] {
			wrong.Addf("args."+name, "%s", reason)
		}
	}
	checkInterfaces(wrong, in.NetworkInterfaces)
}

// oneAddress is why addresses can't be named.
const oneAddress = "the same address can't be that of every instance: want no such field"

func checkInterfaces(wrong *provider.FieldErrors, interfaces []types.InstanceNetworkInterfaceSpecification) {
	if len(interfaces) == 0 {
		return
	}
	type slot struct{ card, device int32 }
	primaries, seen := 0, map[slot]bool{}
	for n, one := range interfaces {
		path := fmt.Sprintf("args.NetworkInterfaces[%d]", n)
		checkInterface(wrong, path, one, len(interfaces))
		if one.DeviceIndex == nil {
			continue
		}
		at := slot{sdk.ToInt32(one.NetworkCardIndex), *one.DeviceIndex}
		if seen[at] && !first(one) {
			wrong.Addf(path+".DeviceIndex", "%d is there twice: want another for each interface of a network card", at.device)
		}
		seen[at] = true
		if first(one) {
			primaries++
		}
	}
	if primaries != 1 {
		wrong.Addf("args.NetworkInterfaces", "%d of them have DeviceIndex 0: want 1, which gets the subnet", primaries)
	}
}

func checkInterface(wrong *provider.FieldErrors, path string, one types.InstanceNetworkInterfaceSpecification, of int) {
	if one.DeviceIndex == nil {
		wrong.Addf(path+".DeviceIndex", "required: want 0 for the first interface")
	}
	if one.NetworkInterfaceId != nil {
		wrong.Addf(path+".NetworkInterfaceId", "%.80q can't be attached to every instance: want no such field", *one.NetworkInterfaceId)
	}
	for name, given := range map[string]bool{
		"PrivateIpAddress": one.PrivateIpAddress != nil, "PrivateIpAddresses": len(one.PrivateIpAddresses) > 0,
		"Ipv6Addresses": len(one.Ipv6Addresses) > 0,
	} {
		if given {
			wrong.Addf(path+"."+name, "%s", oneAddress)
		}
	}
	if of > 1 && sdk.ToBool(one.AssociatePublicIpAddress) {
		wrong.Addf(path+".AssociatePublicIpAddress", "EC2 gives one only to an instance with a single interface: want no such field")
	}
	if first(one) && one.SubnetId != nil {
		wrong.Addf(path+".SubnetId", "%s", hidden()["SubnetId"])
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
		checkTags(wrong, path, spec)
	}
}

// checkTags: those of the instance have to leave room for the provider's own.
func checkTags(wrong *provider.FieldErrors, path string, spec types.TagSpecification) {
	most, keys := maxTags, map[string]bool{}
	if spec.ResourceType == types.ResourceTypeInstance {
		most -= ownTags
	}
	for i, tag := range spec.Tags {
		at, key := fmt.Sprintf("%s.Tags[%d]", path, i), sdk.ToString(tag.Key)
		switch problem := tagProblem(key, sdk.ToString(tag.Value)); {
		case problem != "":
			wrong.Addf(at, "%s", problem)
		case strings.HasPrefix(key, tagPrefix):
			wrong.Addf(at+".Key", "%.80q is not valid: tags that begin with %s are the provider's", key, tagPrefix)
		case keys[key]:
			wrong.Addf(at+".Key", "%.80q is there twice: want one tag for each key", key)
		}
		keys[key] = true
	}
	if len(spec.Tags) > most {
		wrong.Addf(path+".Tags", "%d tags: want at most %d beside the provider's own", len(spec.Tags), most)
	}
}
