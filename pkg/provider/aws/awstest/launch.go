package awstest

import (
	"encoding/base64"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The limits of a launch.
const (
	maxUserdata = 16 << 10 // bytes, before they are encoded
	maxTags     = 50
	maxTagKey   = 128 // characters
	maxTagValue = 256
)

// runParams are the supported parameters of RunInstances.
func runParams() []string {
	names := []string{
		"BlockDeviceMapping.N.DeviceName", "BlockDeviceMapping.N.NoDevice", "BlockDeviceMapping.N.VirtualName", "ClientToken",
		"CpuOptions.CoreCount", "CpuOptions.ThreadsPerCore", "CreditSpecification.CpuCredits", "DisableApiTermination", "EbsOptimized",
		"IamInstanceProfile.Arn", "IamInstanceProfile.Name", "ImageId", "InstanceInitiatedShutdownBehavior",
		"InstanceMarketOptions.MarketType", "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior",
		"InstanceMarketOptions.SpotOptions.MaxPrice", "InstanceMarketOptions.SpotOptions.SpotInstanceType",
		"InstanceMarketOptions.SpotOptions.ValidUntil", "InstanceType", "KeyName", "MaxCount", "MetadataOptions.HttpEndpoint",
		"MetadataOptions.HttpProtocolIpv6", "MetadataOptions.HttpPutResponseHopLimit", "MetadataOptions.HttpTokens",
		"MetadataOptions.InstanceMetadataTags", "MinCount", "Monitoring.Enabled", "Placement.AvailabilityZone", "Placement.GroupName",
		"Placement.Tenancy", "PrivateIpAddress", "SecurityGroupId.N", "SubnetId", "TagSpecification.N.ResourceType",
		"TagSpecification.N.Tag.N.Key", "TagSpecification.N.Tag.N.Value", "UserData",
	}
	for _, name := range []string{
		"DeleteOnTermination", "Encrypted", "Iops", "KmsKeyId", "SnapshotId", "Throughput", "VolumeSize", "VolumeType",
	} {
		names = append(names, "BlockDeviceMapping.N.Ebs."+name)
	}
	for _, name := range []string{
		"AssociatePublicIpAddress", "DeleteOnTermination", "Description", "DeviceIndex", "InterfaceType", "Ipv6AddressCount",
		"NetworkCardIndex", "PrivateIpAddress", "SecondaryPrivateIpAddressCount", "SecurityGroupId.N", "SubnetId",
	} {
		names = append(names, "NetworkInterface.N."+name)
	}
	return names
}

var (
	imageID  = regexp.MustCompile(`^ami-([0-9a-f]{8}|[0-9a-f]{17})$`)
	subnetID = regexp.MustCompile(`^subnet-([0-9a-f]{8}|[0-9a-f]{17})$`)
	groupID  = regexp.MustCompile(`^sg-([0-9a-f]{8}|[0-9a-f]{17})$`)
)

// readLaunch reads a launch and checks everything but capacity.
func (c *Cloud) readLaunch(p *params) (l launch, err error) {
	l = launch{
		token: p.get("ClientToken"), kind: p.get("InstanceType"), keyName: p.get("KeyName"), params: maps.Clone(p.values),
	}
	for _, read := range []func(*params, *launch) error{
		readCounts, c.readImage, readMetadata, readMarket, readUserdata, readNetwork, readTags,
	} {
		if err := read(p, &l); err != nil {
			return l, err
		}
	}
	l.protected, err = p.flag("DisableApiTermination")
	return l, err
}

// readCounts accepts one machine per call only.
func readCounts(p *params, _ *launch) error {
	for _, name := range []string{"MinCount", "MaxCount"} {
		n, ok, err := p.number(name)
		if err != nil {
			return err
		}
		if !ok {
			return bad("MissingParameter", "The request must contain the parameter %s", name)
		}
		if n != 1 {
			return bad("InvalidParameterValue", "Value (%d) for parameter %s is invalid. Expected 1.", n, name)
		}
	}
	return nil
}

// readImage reads the image and checks that it fits the instance type.
func (c *Cloud) readImage(p *params, l *launch) error {
	id := p.get("ImageId")
	switch {
	case id == "":
		return bad("MissingParameter", "The request must contain the parameter ImageId")
	case !imageID.MatchString(id):
		return bad("InvalidAMIID.Malformed", "Invalid id: \"%.80s\"", id)
	}
	n := slices.IndexFunc(c.cfg.Images, func(i Image) bool { return i.ID == id })
	if n < 0 {
		return bad("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
	}
	l.image = c.cfg.Images[n]
	if l.image.State != "available" {
		return bad("InvalidAMIID.Unavailable", "The image ID '[%s]' is not available", id)
	}
	kind := c.cfg.typeOf(l.kind)
	if kind.Name == "" {
		return bad("InvalidParameterValue", "Invalid value '%.80s' for InstanceType.", l.kind)
	}
	if kind.Arch != l.image.Arch {
		return bad("InvalidParameterValue", "The architecture '%s' of the specified instance type does not match the architecture '%s' of the"+
			" specified AMI. Specify an instance type and an AMI that have matching architectures, and try again.", kind.Arch, l.image.Arch)
	}
	return nil
}

func readMetadata(p *params, l *launch) error {
	l.tokens = p.get("MetadataOptions.HttpTokens")
	switch l.tokens {
	case "":
		l.tokens = "optional"
	case "optional", "required":
	default:
		return bad("InvalidParameterValue", "Value (%.80s) for parameter HttpTokens is invalid. Expected optional or required.", l.tokens)
	}
	hops, ok, err := p.number("MetadataOptions.HttpPutResponseHopLimit")
	if err == nil && ok && (hops < 1 || hops > 64) {
		return bad("InvalidParameterValue", "Value (%d) for parameter HttpPutResponseHopLimit is invalid. Expected 1 to 64.", hops)
	}
	return err
}

func readMarket(p *params, l *launch) error {
	switch market := p.get("InstanceMarketOptions.MarketType"); market {
	case "spot":
		l.spot = true
	case "":
		if p.any("InstanceMarketOptions") {
			return bad("MissingParameter", "The request must contain the parameter InstanceMarketOptions.MarketType")
		}
	default:
		return bad("InvalidParameterValue", "Value (%.80s) for parameter MarketType is invalid. Expected spot.", market)
	}
	return nil
}

func readUserdata(p *params, l *launch) error {
	data, err := base64.StdEncoding.Strict().DecodeString(p.get("UserData"))
	if err != nil {
		return bad("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	if len(data) > maxUserdata {
		return bad("InvalidParameterValue", "User data is limited to %d bytes", maxUserdata)
	}
	l.userdata = data
	return nil
}

// readNetwork reads subnets and security groups, which are either those of the instance or those of
// its interfaces.
func readNetwork(p *params, l *launch) error {
	interfaces, err := p.count("NetworkInterface")
	if err != nil {
		return err
	}
	slots := []slot{{}} // without interfaces, the instance's parameters are those of its only one
	if interfaces > 0 {
		for _, name := range []string{"SubnetId", "SecurityGroupId", "PrivateIpAddress"} {
			if p.any(name) {
				return bad("InvalidParameterCombination", "Network interfaces and an instance-level %s may not be specified on the same request", name)
			}
		}
		if slots, err = readSlots(p, interfaces); err != nil {
			return err
		}
	}
	for _, s := range slots {
		n, err := readNIC(p, s)
		if err != nil {
			return err
		}
		l.nics = append(l.nics, n)
	}
	l.subnet = l.nics[0].subnet
	l.publicIP, err = p.flag(slots[0].at + "AssociatePublicIpAddress")
	if l.publicIP && interfaces > 1 {
		return bad("InvalidParameterCombination",
			"The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.")
	}
	return err
}

// slot is the position of an interface, in the machine and in the call.
type slot struct {
	at    string // the prefix of its parameters
	index int
}

// readNIC reads an interface that is created with the machine.
func readNIC(p *params, s slot) (n nic, err error) {
	n = nic{index: s.index, subnet: p.get(s.at + "SubnetId"), deleteOnTermination: true}
	if n.groups, err = p.list(s.at + "SecurityGroupId"); err != nil {
		return n, err
	}
	if s.at != "" && p.has(s.at+"DeleteOnTermination") {
		if n.deleteOnTermination, err = p.flag(s.at + "DeleteOnTermination"); err != nil {
			return n, err
		}
	}
	if p.has(s.at + "PrivateIpAddress") {
		if n.address, err = readAddress(p.get(s.at+"PrivateIpAddress"), netip.Addr.Is4); err != nil {
			return n, err
		}
	}
	switch {
	case n.subnet == "":
		return n, bad("MissingInput", "No subnets found for the default VPC. Please specify a subnet.")
	case !subnetID.MatchString(n.subnet):
		return n, bad("InvalidSubnetID.Malformed", "Invalid id: \"%.80s\"", n.subnet)
	}
	for _, group := range n.groups {
		if !groupID.MatchString(group) {
			return n, bad("InvalidGroupId.Malformed", "Invalid id: \"%.80s\"", group)
		}
	}
	return n, nil
}

// readSlots reads the positions of a call's interfaces. The primary one, with device index 0, comes
// first.
func readSlots(p *params, interfaces int) (slots []slot, err error) {
	seen := map[string]bool{}
	for n := range interfaces {
		at := "NetworkInterface." + strconv.Itoa(n+1) + "."
		index, ok, err := p.number(at + "DeviceIndex")
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return nil, bad("MissingParameter", "Each network interface requires a device index.")
		case index < 0:
			return nil, bad("InvalidParameterValue", "Value (%d) for parameter deviceIndex is invalid.", index)
		}
		place := strconv.Itoa(index) + "/" + p.get(at+"NetworkCardIndex")
		if seen[place] {
			return nil, bad("InvalidParameterValue", "Duplicate device index %d on the network interfaces.", index)
		}
		seen[place] = true
		slots = append(slots, slot{at, index})
	}
	slices.SortStableFunc(slots, func(a, b slot) int { return a.index - b.index })
	if slots[0].index != 0 {
		return nil, bad("InvalidParameterCombination", "A primary network interface with device index 0 is required.")
	}
	return slots, nil
}

// readTags reads the tags of the instance and of its interfaces, and checks all others.
func readTags(p *params, l *launch) error {
	specs, err := p.count("TagSpecification")
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for n := range specs {
		at := "TagSpecification." + strconv.Itoa(n+1)
		resource := p.get(at + ".ResourceType")
		switch {
		case !slices.Contains([]string{"instance", "volume", "network-interface", "spot-instances-request"}, resource):
			return bad("InvalidParameterValue", "'%.80s' is not a valid taggable resource type for this operation.", resource)
		case seen[resource]:
			return bad("InvalidParameterValue", "Duplicate tag specification for the resource type '%s'.", resource)
		case resource == "spot-instances-request" && !l.spot:
			return bad("InvalidParameterCombination", "The resource type 'spot-instances-request' needs a spot request.")
		}
		seen[resource] = true
		tags, err := readTagList(p, at+".Tag")
		if err != nil {
			return err
		}
		switch resource {
		case "instance":
			l.tags = tags
		case "network-interface":
			l.nicTags = tags
		}
	}
	return nil
}

func readTagList(p *params, list string) (map[string]string, error) {
	count, err := p.count(list)
	if err != nil {
		return nil, err
	}
	tags := map[string]string{}
	for n := range count {
		at := list + "." + strconv.Itoa(n+1)
		key, value := p.get(at+".Key"), p.get(at+".Value")
		if _, twice := tags[key]; twice {
			return nil, bad("InvalidParameterValue", "Duplicate tag key '%.80s' specified.", key)
		}
		if err := checkTag(key, value); err != nil {
			return nil, err
		}
		tags[key] = value
	}
	return tags, checkTagCount(tags)
}

func checkTag(key, value string) error {
	switch {
	case key == "" || utf8.RuneCountInString(key) > maxTagKey:
		return bad("InvalidParameterValue", "Tag keys must be between 1 and %d characters in length: '%.80s'", maxTagKey, key)
	case utf8.RuneCountInString(value) > maxTagValue:
		return bad("InvalidParameterValue", "Tag value exceeds the maximum length of %d characters: '%.80s'", maxTagValue, value)
	case strings.HasPrefix(strings.ToLower(key), "aws:"):
		return bad("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use: '%.80s'", key)
	default:
		return nil
	}
}

func checkTagCount(tags map[string]string) error {
	if len(tags) > maxTags {
		return bad("TagLimitExceeded", "The maximum number of tags for a resource has been reached: %d, of %d", len(tags), maxTags)
	}
	return nil
}
