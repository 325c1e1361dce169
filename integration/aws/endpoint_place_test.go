//go:build integration

package aws

import (
	"cmp"
	"context"
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/providertest"
)

func filter(name string, values ...string) []types.Filter {
	return []types.Filter{{Name: &name, Values: values}}
}

// findSubnet returns the configured subnet, or else the first zone's default one.
func (e *endpoint) findSubnet(t *testing.T) {
	t.Helper()
	which := filter("default-for-az", "true")
	if told := os.Getenv("NSTANCE_TEST_AWS_SUBNET"); told != "" {
		which = filter("subnet-id", told)
	}
	out, err := e.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{Filters: which})
	must(t, err)
	if len(out.Subnets) == 0 {
		t.Fatalf("no subnet has %s %v: want NSTANCE_TEST_AWS_SUBNET to be one", *which[0].Name, which[0].Values)
	}
	first := slices.MinFunc(out.Subnets, func(a, b types.Subnet) int { return cmp.Compare(*a.AvailabilityZone, *b.AvailabilityZone) })
	e.subnet, e.zone, e.vpc = *first.SubnetId, *first.AvailabilityZone, *first.VpcId
}

// makeSmall creates a subnet of 11 addresses, which the suite can fill, as high in the VPC as
// possible.
func (e *endpoint) makeSmall(t *testing.T) {
	t.Helper()
	vpcs, err := e.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{Filters: filter("vpc-id", e.vpc)})
	must(t, err)
	block, err := netip.ParsePrefix(*vpcs.Vpcs[0].CidrBlock)
	must(t, err)
	for _, cidr := range highest(block, 64) {
		out, err := e.ec2.CreateSubnet(t.Context(), &ec2.CreateSubnetInput{
			VpcId: &e.vpc, AvailabilityZone: &e.zone, CidrBlock: &cidr,
			TagSpecifications: []types.TagSpecification{{
				ResourceType: types.ResourceTypeSubnet, Tags: []types.Tag{{Key: sdk.String("Name"), Value: &e.run}},
			}},
		})
		if code, _ := awsclient.Code(err); code == "InvalidSubnet.Conflict" {
			continue
		}
		must(t, err)
		e.small = *out.Subnet.SubnetId
		t.Cleanup(func() {
			e.within(t, "delete subnet "+e.small, func(ctx context.Context) error {
				_, err := e.ec2.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &e.small})
				return err
			})
		})
		return
	}
	t.Fatalf("VPC %s has no room for a /28 in its last 1024 addresses: want NSTANCE_TEST_AWS_SUBNET to be in one that has", e.vpc)
}

// highest returns the last blocks of 16 addresses in a block, the last one first.
func highest(block netip.Prefix, most int) []string {
	first := block.Masked().Addr().As4()
	end := uint64(binary.BigEndian.Uint32(first[:])) + 1<<(32-block.Bits())
	var out []string
	for n := range uint64(min(most, 1<<(28-block.Bits()))) {
		var at [4]byte
		binary.BigEndian.PutUint32(at[:], uint32(end-16*(n+1)))
		out = append(out, netip.AddrFrom4(at).String()+"/28")
	}
	return out
}

// findImage returns the configured image, or else the newest Amazon Linux, found through the
// provider.
func (e *endpoint) findImage(t *testing.T) {
	t.Helper()
	if e.image = os.Getenv("NSTANCE_TEST_AWS_IMAGE"); e.image != "" {
		return
	}
	images, _ := provider.ImageResolverOf(e.open(t, provider.Scope{ClusterID: e.run, Shard: shard}))
	var err error
	e.image, err = images.ResolveImage(t.Context(), provider.ImageQuery{
		Owners: []string{"amazon"}, Sort: "creation-date", Order: "desc",
		Filters: []provider.ImageFilter{{Name: "name", Values: []string{"al20*-ami-20*-x86_64"}}},
	})
	if err != nil {
		t.Fatalf("no image of Amazon Linux: %v: want NSTANCE_TEST_AWS_IMAGE to be one for amd64", err)
	}
}

// imageCases look for the one known image.
func (e *endpoint) imageCases(t *testing.T) []providertest.ImageCase {
	t.Helper()
	out, err := e.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Filters: filter("image-id", e.image)})
	must(t, err)
	if len(out.Images) != 1 {
		t.Fatalf("%d images are %s, want one", len(out.Images), e.image)
	}
	owner, name := *out.Images[0].OwnerId, *out.Images[0].Name
	by := func(property, value string) []provider.ImageFilter {
		return []provider.ImageFilter{{Name: property, Values: []string{value}}}
	}
	return []providertest.ImageCase{
		{Query: provider.ImageQuery{Filters: by("image-id", e.image)}, Want: e.image},
		{Query: provider.ImageQuery{Owners: []string{owner}, Filters: append(by("name", name), by("image-id", e.image)...)}, Want: e.image},
		{Query: provider.ImageQuery{Owners: []string{owner}, Filters: by("name", name[:len(name)-1]+"?")}},
		{Query: provider.ImageQuery{Owners: []string{"self"}, Filters: by("name", e.run)}},
	}
}
