package awstest

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"
)

// Subnet is a range of addresses in one zone.
type Subnet struct {
	ID   string
	VPC  string
	Zone string
	CIDR netip.Prefix // of IPv4
	IPv6 netip.Prefix // zero: none
}

// InstanceType is the hardware of a machine.
type InstanceType struct {
	Name      string
	CPUs      int
	MemoryMiB int
	Arch      string // x86_64 | arm64

	Interfaces    int // maximum of a machine; 0: any number
	AddressesEach int // maximum of one interface, for IPv4 and for IPv6; 0: any number
}

// EC2 reserves the first four addresses of a subnet, and the last.
const (
	reservedAtStart = 4
	reservedAtEnd   = 1
)

// size returns the number of addresses of the subnet, reserved ones included.
func (s Subnet) size() int { return 1 << (s.CIDR.Addr().BitLen() - s.CIDR.Bits()) }

func (cfg Config) subnet(id string) (Subnet, bool) {
	n := slices.IndexFunc(cfg.Subnets, func(s Subnet) bool { return s.ID == id })
	if n < 0 {
		return Subnet{}, false
	}
	return cfg.Subnets[n], true
}

func (cfg Config) vpcOf(subnet string) string {
	s, _ := cfg.subnet(subnet)
	return s.VPC
}

// assignable reports whether an address belongs to the subnet and is not reserved.
func (s Subnet) assignable(addr netip.Addr) bool {
	if !s.CIDR.Contains(addr) {
		return false
	}
	first, at := s.CIDR.Masked().Addr().As4(), addr.As4()
	offset := binary.BigEndian.Uint32(at[:]) - binary.BigEndian.Uint32(first[:])
	return offset >= reservedAtStart && int(offset) < s.size()-reservedAtEnd
}

// countFree returns the number of free addresses of a subnet.
func countFree(c *Cloud, s Subnet, now time.Time) int {
	free := s.size() - reservedAtStart - reservedAtEnd
	for _, k := range c.interfaces {
		if _, h, ok := k.stateAt(now); ok && k.subnet == s.ID {
			free -= len(h.ipv4)
		}
	}
	return max(0, free)
}

// typeOf returns an instance type; the zero InstanceType if it is unknown.
func (cfg Config) typeOf(name string) InstanceType {
	n := slices.IndexFunc(cfg.InstanceTypes, func(t InstanceType) bool { return t.Name == name })
	if n < 0 {
		return InstanceType{}
	}
	return cfg.InstanceTypes[n]
}

type subnetItem struct {
	ID    string `xml:"subnetId"`
	State string `xml:"state"`
	VPC   string `xml:"vpcId"`
	CIDR  string `xml:"cidrBlock"`
	Free  int    `xml:"availableIpAddressCount"`
	Zone  string `xml:"availabilityZone"`
	Owner string `xml:"ownerId"`

	IPv6 []string `xml:"ipv6CidrBlockAssociationSet>item>ipv6CidrBlock"`
}

type subnetsReply struct {
	XMLName struct{} `xml:"DescribeSubnetsResponse"`
	header
	Items     []subnetItem `xml:"subnetSet>item"`
	NextToken string       `xml:"nextToken,omitempty"`
}

// describeSubnets shows the present; EC2 documents no lag of it either.
func (c *Cloud) describeSubnets(p *params) (any, error) {
	q, err := readQuery(p, "SubnetId", limits{5, 1000}, "subnet-id", "vpc-id", "availability-zone")
	if err != nil {
		return nil, err
	}
	for _, id := range q.ids {
		if _, ok := c.cfg.subnet(id); !ok {
			return nil, bad("InvalidSubnetID.NotFound", "The subnet ID '%.80s' does not exist", id)
		}
	}
	var items []subnetItem
	for _, s := range c.cfg.Subnets {
		if q.matches(s.ID, map[string][]string{"subnet-id": {s.ID}, "vpc-id": {s.VPC}, "availability-zone": {s.Zone}}) {
			item := subnetItem{s.ID, "available", s.VPC, s.CIDR.String(), countFree(c, s, c.cfg.Now()), s.Zone, c.cfg.Account, nil}
			if s.IPv6.IsValid() {
				item.IPv6 = []string{s.IPv6.String()}
			}
			items = append(items, item)
		}
	}
	page, next := paginate(q, items)
	return &subnetsReply{Items: page, NextToken: next}, nil
}

type typeItem struct {
	Name   string   `xml:"instanceType"`
	CPUs   int      `xml:"vCpuInfo>defaultVCpus"`
	Memory int      `xml:"memoryInfo>sizeInMiB"`
	Archs  []string `xml:"processorInfo>supportedArchitectures>item"`
}

type typesReply struct {
	XMLName struct{} `xml:"DescribeInstanceTypesResponse"`
	header
	Items     []typeItem `xml:"instanceTypeSet>item"`
	NextToken string     `xml:"nextToken,omitempty"`
}

func (c *Cloud) describeInstanceTypes(p *params) (any, error) {
	q, err := readQuery(p, "InstanceType", limits{5, 100}, "instance-type", "processor-info.supported-architecture")
	if err != nil {
		return nil, err
	}
	if len(q.ids) > 100 {
		return nil, bad("InvalidParameterValue", "%d instance types: want at most 100", len(q.ids))
	}
	for _, name := range q.ids {
		if c.cfg.typeOf(name).Name == "" {
			return nil, bad("InvalidInstanceType", "The following supplied instance types do not exist: [%.80s]", name)
		}
	}
	var items []typeItem
	for _, t := range c.cfg.InstanceTypes {
		if q.matches(t.Name, map[string][]string{"instance-type": {t.Name}, "processor-info.supported-architecture": {t.Arch}}) {
			items = append(items, typeItem{t.Name, t.CPUs, t.MemoryMiB, []string{t.Arch}})
		}
	}
	page, next := paginate(q, items)
	return &typesReply{Items: page, NextToken: next}, nil
}
