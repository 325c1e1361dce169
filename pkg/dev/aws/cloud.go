package aws

import (
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// The resources of CloudConfig.
const (
	Account    = "123456789012"
	Region     = "us-east-1"
	VPC        = "vpc-0000000000000000a"
	SubnetA    = "subnet-0000000000000000a" // in zone a
	SubnetB    = "subnet-0000000000000000b" // in zone b
	ImageAMD64 = "ami-0000000000000000a"
	ImageARM64 = "ami-0000000000000000b"
	Role       = "nstance"
	// TargetGroup is a load balancer's target group, for instances.
	TargetGroup = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/web/0123456789abcdef"
)

// CloudConfig is a cloud for experiments: a network with two zones, images and some instance types.
// Requests must be signed with known keys. The machines have loopback addresses, at which a process
// on this host can be reached.
func CloudConfig() awstest.Config {
	return awstest.Config{
		Region: Region, Account: Account, Role: Role, KnownKeys: true,
		Boot: time.Second, Shutdown: time.Second, Attach: time.Second, Detach: time.Second, Lag: 500 * time.Millisecond, Draining: time.Second,
		Subnets: []awstest.Subnet{
			{ID: SubnetA, VPC: VPC, Zone: Region + "a", CIDR: netip.MustParsePrefix("127.77.0.0/24")},
			{ID: SubnetB, VPC: VPC, Zone: Region + "b", CIDR: netip.MustParsePrefix("127.77.1.0/24")},
		},
		Images: []awstest.Image{
			{ID: ImageAMD64, Owner: Account, Name: "agent-amd64", Arch: "x86_64", State: "available", CreatedAt: time.Unix(0, 0)},
			{ID: ImageARM64, Owner: Account, Name: "agent-arm64", Arch: "arm64", State: "available", CreatedAt: time.Unix(0, 0)},
		},
		InstanceTypes: []awstest.InstanceType{
			{Name: "t4g.nano", CPUs: 2, MemoryMiB: 512, Arch: "arm64"}, {Name: "t3.small", CPUs: 2, MemoryMiB: 2048, Arch: "x86_64"},
			{Name: "m7g.large", CPUs: 2, MemoryMiB: 8192, Arch: "arm64"}, {Name: "m7i.large", CPUs: 2, MemoryMiB: 8192, Arch: "x86_64"},
		},
		TargetGroups: []awstest.TargetGroup{{ARN: TargetGroup, VPC: VPC, Port: 80}},
	}
}
