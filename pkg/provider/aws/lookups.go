package aws

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/provider"
)

// This file has the reads of resources other than instances.

// maxValues is the number of filter values per call; EC2's limit is 200.
const maxValues = 100

// pages reads page after page. next is the token of the call that read makes, which returns
// that of the next page.
func pages(next **string, read func() (after *string, err error)) error {
	for {
		after, err := read()
		if err != nil {
			return err
		}
		if sdk.ToString(after) == "" {
			return nil
		}
		*next = after
	}
}

// spare is the number of addresses of a subnet left to others that need some without this
// server's knowledge: load balancers, interface endpoints, other shards.
const spare = 10

// FreeAddresses implements provider.SubnetCapacity. EC2 counts IPv4 addresses, so IPv6-only
// subnets have more.
func (p *Provider) FreeAddresses(ctx context.Context, subnets []string) (map[string]int, error) {
	free := map[string]int{}
	for ids := range chunks(subnets, subnetID) {
		in := &ec2.DescribeSubnetsInput{Filters: []types.Filter{{Name: sdk.String("subnet-id"), Values: ids}}}
		if err := pages(&in.NextToken, func() (*string, error) {
			out, err := p.api.describeSubnets(ctx, in)
			if err != nil {
				return nil, fmt.Errorf("describe subnets: %w", sorted("ec2:DescribeSubnets", err))
			}
			for _, s := range out.Subnets {
				n := max(0, int(sdk.ToInt32(s.AvailableIpAddressCount))-spare)
				if sdk.ToBool(s.Ipv6Native) {
					n = math.MaxInt32
				}
				free[sdk.ToString(s.SubnetId)] = n
			}
			return out.NextToken, nil
		}); err != nil {
			return nil, err
		}
	}
	return free, nil
}

// typeName matches instance type names.
var typeName = regexp.MustCompile(`^[a-z0-9-]+\.[a-z0-9-]+$`)

// InstanceTypes implements provider.InstanceTypes.
func (p *Provider) InstanceTypes(ctx context.Context, names []string) (map[string]provider.InstanceType, error) {
	found := map[string]provider.InstanceType{}
	for some := range chunks(names, typeName) {
		in := &ec2.DescribeInstanceTypesInput{Filters: []types.Filter{{Name: sdk.String("instance-type"), Values: some}}}
		if err := pages(&in.NextToken, func() (*string, error) {
			out, err := p.api.describeTypes(ctx, in)
			if err != nil {
				return nil, fmt.Errorf("describe instance types: %w", sorted("ec2:DescribeInstanceTypes", err))
			}
			for _, t := range out.InstanceTypes {
				if described, ok := typeOf(t); ok {
					found[string(t.InstanceType)] = described
				}
			}
			return out.NextToken, nil
		}); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// typeOf converts an instance type; ok is false for one on which no agent runs.
func typeOf(t types.InstanceTypeInfo) (out provider.InstanceType, ok bool) {
	if t.VCpuInfo == nil || t.MemoryInfo == nil || t.ProcessorInfo == nil {
		return out, false
	}
	out.CPUMillis = int64(sdk.ToInt32(t.VCpuInfo.DefaultVCpus)) * 1000
	out.MemoryBytes = sdk.ToInt64(t.MemoryInfo.SizeInMiB) << 20
	switch archs := t.ProcessorInfo.SupportedArchitectures; {
	case slices.Contains(archs, types.ArchitectureTypeX8664):
		out.Arch = "amd64"
	case slices.Contains(archs, types.ArchitectureTypeArm64):
		out.Arch = "arm64"
	}
	return out, out.Arch != ""
}

// chunks yields the valid names without duplicates, in chunks for one call. Other names are
// dropped, as a star in them would be a wildcard.
func chunks(names []string, looks *regexp.Regexp) func(func([]string) bool) {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !looks.MatchString(name) })
	slices.Sort(names)
	return slices.Chunk(slices.Compact(names), maxValues)
}

// ResolveImage implements provider.ImageResolver. A query must name the owners it trusts, as
// every account can publish images under any name.
func (p *Provider) ResolveImage(ctx context.Context, q provider.ImageQuery) (string, error) {
	if !owned(q) {
		return "", fmt.Errorf("%w: owners: required: want accounts, self or amazon, or a filter by image-id or owner-id", provider.ErrInvalid)
	}
	in := &ec2.DescribeImagesInput{Owners: q.Owners}
	for _, f := range q.Filters {
		in.Filters = append(in.Filters, types.Filter{Name: &f.Name, Values: escaped(f.Values)})
	}
	var images []types.Image
	if err := pages(&in.NextToken, func() (*string, error) {
		out, err := p.api.describeImages(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("describe images: %w", sorted("ec2:DescribeImages", err))
		}
		images = append(images, out.Images...)
		return out.NextToken, nil
	}); err != nil {
		return "", err
	}
	seen := len(images)
	images = slices.DeleteFunc(images, func(i types.Image) bool { return i.State != types.ImageStateAvailable })
	if len(images) == 0 {
		return "", fmt.Errorf("%w: none of %d images that match is available", provider.ErrNotFound, seen)
	}
	pick := slices.MinFunc(images, func(a, b types.Image) int { return compare(a, b, q) })
	return sdk.ToString(pick.ImageId), nil
}

// owned reports whether a query restricts the owners.
func owned(q provider.ImageQuery) bool {
	return len(q.Owners) > 0 || slices.ContainsFunc(q.Filters, func(f provider.ImageFilter) bool {
		return f.Name == "image-id" || f.Name == "owner-id"
	})
}

// escaped escapes the values so that only a star is a wildcard in EC2's syntax.
func escaped(values []string) []string {
	out := make([]string, len(values))
	for n, v := range values {
		out[n] = strings.NewReplacer(`\`, `\\`, `?`, `\?`).Replace(v)
	}
	return out
}

// compare orders images as a query asks. EC2's dates sort as text.
func compare(a, b types.Image, q provider.ImageQuery) int {
	by := func(text func(types.Image) *string) int {
		return cmp.Compare(sdk.ToString(text(a)), sdk.ToString(text(b)))
	}
	order := cmp.Or(by(func(i types.Image) *string { return i.CreationDate }), by(func(i types.Image) *string { return i.ImageId }))
	if q.Sort == "name" {
		order = cmp.Or(by(func(i types.Image) *string { return i.Name }), order)
	}
	if q.Order == "desc" {
		return -order
	}
	return order
}
