package aws

import (
	"fmt"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/provider"
)

// hidden returns the launch fields that args can't set, and why.
func hidden() map[string]string {
	const one = "set by the provider: each launch makes one instance"
	return map[string]string{
		"ClientToken":           "set by the provider, from the instance's ID and subnet",
		"MinCount":              one,
		"MaxCount":              one,
		"DryRun":                "set by the provider: remove it",
		"SubnetId":              "set by the provider: use subnet_pool",
		"InstanceType":          "set by the provider: use instance_type beside args",
		"UserData":              "set by the provider: use userdata beside args",
		"DisableApiTermination": "the provider must be able to terminate its instances: remove it",
	}
}

// CheckArgs implements provider.ArgsChecker.
func (cfg Config) CheckArgs(spec provider.Spec) error {
	_, err := decodeLaunch(spec)
	return err
}

// CheckArgs implements provider.ArgsChecker.
func (p *Provider) CheckArgs(spec provider.Spec) error { return p.cfg.CheckArgs(spec) }

// decodeLaunch decodes a spec's args into a launch request, without the instance's own fields. The
// error lists all problems of the args, and that of the userdata.
func decodeLaunch(spec provider.Spec) (*ec2.RunInstancesInput, error) {
	in := &ec2.RunInstancesInput{}
	wrong := decodeArgs(spec.Args, in, hidden())
	if len(wrong) > 0 {
		checkUserdata(&wrong, spec.Userdata)
		return nil, wrong // the args can't be validated further
	}
	checkImage(&wrong, in)
	checkTemplate(&wrong, in.LaunchTemplate)
	checkMarket(&wrong, in.InstanceMarketOptions)
	checkNetwork(&wrong, in)
	checkTagSpecs(&wrong, in.TagSpecifications)
	checkUserdata(&wrong, spec.Userdata)
	return in, wrong.Err()
}

func checkUserdata(wrong *provider.FieldErrors, userdata []byte) {
	if len(userdata) > maxUserdata {
		wrong.Addf("userdata", "%d bytes as rendered and encoded: EC2 takes at most %d; compress it by the encoding gzip, or download the rest",
			len(userdata), maxUserdata)
	}
}

func checkImage(wrong *provider.FieldErrors, in *ec2.RunInstancesInput) {
	if sdk.ToString(in.ImageId) == "" && in.LaunchTemplate == nil {
		wrong.Addf("args.ImageId", "required: want an image ID, or args.LaunchTemplate")
	}
	if id := sdk.ToString(in.ImageId); strings.HasPrefix(id, "resolve:") {
		wrong.Addf("args.ImageId", "%.80q makes EC2 read a parameter, for which servers have no permission: want an image ID", id)
	}
}

func checkTemplate(wrong *provider.FieldErrors, t *types.LaunchTemplateSpecification) {
	if t != nil && (sdk.ToString(t.LaunchTemplateId) == "") == (sdk.ToString(t.LaunchTemplateName) == "") {
		wrong.Addf("args.LaunchTemplate", "want either LaunchTemplateId or LaunchTemplateName")
	}
}

// checkMarket refuses persistent spot requests: EC2 restarts their instances after they are
// terminated, as instances unknown to the shard.
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
			"%q is not valid: it needs a persistent request; want %s", what, types.InstanceInterruptionBehaviorTerminate)
	}
}

// checkNetwork checks the network settings: they belong either to the instance or to its
// interfaces, the first of which gets the subnet. Addresses can't be set, as every instance
// would get the same.
func checkNetwork(wrong *provider.FieldErrors, in *ec2.RunInstancesInput) {
	given := map[string]bool{
		"SecurityGroupIds": len(in.SecurityGroupIds) > 0, "SecurityGroups": len(in.SecurityGroups) > 0,
		"PrivateIpAddress": in.PrivateIpAddress != nil, "Ipv6Addresses": len(in.Ipv6Addresses) > 0,
		"Ipv6AddressCount": in.Ipv6AddressCount != nil,
	}
	reasons := map[string]string{
		"SecurityGroups":   "not supported with a subnet: use SecurityGroupIds",
		"PrivateIpAddress": oneAddress, "Ipv6Addresses": oneAddress,
	}
	if len(in.NetworkInterfaces) > 0 {
		for name := range given {
			reasons[name] = "not allowed beside args.NetworkInterfaces: set it on the interface"
		}
	}
	for name, reason := range reasons {
		if given[name] {
			wrong.Addf("args."+name, "%s", reason)
		}
	}
	checkInterfaces(wrong, in.NetworkInterfaces)
}

// oneAddress is the error for addresses in args.
const oneAddress = "every instance would get the same address: remove it"

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
			wrong.Addf(path+".DeviceIndex", "duplicate %d: must be unique per network card", at.device)
		}
		seen[at] = true
		if first(one) {
			primaries++
		}
	}
	if primaries != 1 {
		wrong.Addf("args.NetworkInterfaces", "%d interfaces have DeviceIndex 0: want exactly one, which gets the subnet", primaries)
	}
}

func checkInterface(wrong *provider.FieldErrors, path string, one types.InstanceNetworkInterfaceSpecification, of int) {
	if one.DeviceIndex == nil {
		wrong.Addf(path+".DeviceIndex", "required: want 0 for the first interface")
	}
	if one.NetworkInterfaceId != nil {
		wrong.Addf(path+".NetworkInterfaceId", "%.80q can't be attached to every instance: remove it", *one.NetworkInterfaceId)
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
		wrong.Addf(path+".AssociatePublicIpAddress", "only supported for instances with a single interface: remove it")
	}
	if first(one) && one.SubnetId != nil {
		wrong.Addf(path+".SubnetId", "%s", hidden()["SubnetId"])
	}
}

// first reports whether an interface is the primary one.
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
			wrong.Addf(path+".ResourceType", "duplicate %.80q: want one entry per type", spec.ResourceType)
		}
		seen[spec.ResourceType] = true
		checkTags(wrong, path, spec)
	}
}

// checkTags checks tags of args, which must leave room for the provider's own.
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
			wrong.Addf(at+".Key", "%.80q is not valid: tags that begin with %s are reserved for the provider", key, tagPrefix)
		case keys[key]:
			wrong.Addf(at+".Key", "duplicate %.80q: want one tag per key", key)
		}
		keys[key] = true
	}
	if len(spec.Tags) > most {
		wrong.Addf(path+".Tags", "%d tags: want at most %d besides the provider's own", len(spec.Tags), most)
	}
}
