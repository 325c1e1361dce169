package aws

import (
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

// What there is in the cloud of World.
const (
	Account    = "123456789012"
	Region     = "us-east-1"
	VPC        = "vpc-0000000000000000a"
	SubnetA    = "subnet-0000000000000000a" // in zone a
	SubnetB    = "subnet-0000000000000000b" // in zone b
	ImageAMD64 = "ami-0000000000000000a"
	ImageARM64 = "ami-0000000000000000b"
	Role       = "nstance"
	// TargetGroup is one of a load balancer, to which instances are registered.
	TargetGroup = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/web/0123456789abcdef"
)

// World is a cloud to try things in: a network with two zones, an image and some
// instance types. The addresses of its machines are ones that every Linux host has, so
// that what runs on one of them can be reached at its address.
func World() awsfake.Config {
	return awsfake.Config{
		Region: Region, Account: Account, Role: Role,
		Boot: time.Second, Shutdown: time.Second, Attach: time.Second, Detach: time.Second, Lag: 500 * time.Millisecond, Draining: time.Second,
		Subnets: []awsfake.Subnet{
			{ID: SubnetA, VPC: VPC, Zone: Region + "a", CIDR: netip.MustParsePrefix("127.77.0.0/24")},
			{ID: SubnetB, VPC: VPC, Zone: Region + "b", CIDR: netip.MustParsePrefix("127.77.1.0/24")},
		},
		Images: []awsfake.Image{
			{ID: ImageAMD64, Owner: Account, Name: "agent-amd64", Arch: "x86_64", State: "available", CreatedAt: time.Unix(0, 0)},
			{ID: ImageARM64, Owner: Account, Name: "agent-arm64", Arch: "arm64", State: "available", CreatedAt: time.Unix(0, 0)},
		},
		InstanceTypes: []awsfake.InstanceType{
			{Name: "t4g.nano", CPUs: 2, MemoryMiB: 512, Arch: "arm64"}, {Name: "t3.small", CPUs: 2, MemoryMiB: 2048, Arch: "x86_64"},
			{Name: "m7g.large", CPUs: 2, MemoryMiB: 8192, Arch: "arm64"}, {Name: "m7i.large", CPUs: 2, MemoryMiB: 8192, Arch: "x86_64"},
		},
		TargetGroups: []awsfake.TargetGroup{{ARN: TargetGroup, VPC: VPC, Port: 80}},
	}
}
