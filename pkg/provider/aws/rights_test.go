package aws_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/awsclient/iam"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
	"github.com/nstance/nstance/pkg/provider/aws/awsfake/policy"
)

// TestEachStatementIsNeeded: with the policy of a server all that one does is allowed,
// and without any of its statements something is not.
func TestEachStatementIsNeeded(t *testing.T) {
	whole := awsclienttest.Rights(t, region, nil, iam.SectionServer)[0]
	// Of what is asked only in S3, which object/s3 calls, and of an account without any
	// spot instance yet.
	elsewhere := []string{"Bucket", "FirstSpot", "Objects"}
	synctest.Test(t, func(t *testing.T) {
		if err := everything(t, whole); err != nil {
			t.Errorf("with the whole policy: %v", err)
		}
	})
	for _, s := range iam.Statements() {
		if s.Section != iam.SectionServer || slices.Contains(elsewhere, s.ID) {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			if err := everything(t, whole.Without(s.ID)); !errors.Is(err, provider.ErrUnauthorized) {
				t.Errorf("without the statement %s: %v, want ErrUnauthorized", s.ID, err)
			}
		})
	}
}

// everything is what a server asks of AWS, with a policy. It returns all refusals.
func everything(t *testing.T, allowed policy.Policy) error {
	t.Helper()
	var refused []error
	try := func(err error) { refused = append(refused, err) }
	for _, m := range []mode{modes()[2], modes()[5]} { // both ways, with both families
		s := newShard(t, m, func(cfg *awsfake.Config) {
			cfg.TargetGroups = []awsfake.TargetGroup{{ARN: targets, Port: 80, VPC: vpc, Tags: tags()}}
		})
		a, b := s.host(t), s.host(t)
		s.Rights.Set(allowed)
		try(a.Assign(t.Context()))
		try(b.Assign(t.Context()))

		p := open(t, s.client, scope)
		wish := spec(t, 1)
		wish.Args = map[string]any{
			"ImageId": image, "KeyName": "ops", "IamInstanceProfile": map[string]any{"Name": "agent"},
			"SecurityGroupIds":      []any{"sg-0000000a"},
			"InstanceMarketOptions": map[string]any{"MarketType": "spot"},
			"BlockDeviceMappings": []any{map[string]any{"DeviceName": "/dev/sda1", "Ebs": map[string]any{
				"SnapshotId": "snap-0000000a", "VolumeSize": 8,
			}}},
		}
		vm, err := p.Create(t.Context(), wish)
		try(err)
		_, err = p.List(t.Context())
		try(err)
		_, err = p.FreeAddresses(t.Context(), []string{large})
		try(err)
		_, err = p.InstanceTypes(t.Context(), []string{"t3.small"})
		try(err)
		_, err = p.ResolveImage(t.Context(), provider.ImageQuery{Owners: []string{"self"}, Sort: "name", Order: "asc"})
		try(err)
		if vm.ProviderID == "" {
			continue
		}
		_, err = provider.GetOne(t.Context(), p, vm.Ref())
		try(err)
		try(p.Register(t.Context(), targets, vm.Ref()))
		_, err = p.Targets(t.Context(), targets)
		try(err)
		try(p.Deregister(t.Context(), targets, vm.Ref()))
		try(p.Delete(t.Context(), []provider.Ref{vm.Ref()})[0])
	}
	return errors.Join(refused...)
}

// TestRightsEndWithTheCluster: what is another cluster's, and a role that is not the
// instances' own, are out of reach whatever is asked.
func TestRightsEndWithTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		wish := spec(t, 1)
		wish.Args = map[string]any{"ImageId": image, "IamInstanceProfile": map[string]any{"Name": "admin"}}
		if _, err := p.Create(t.Context(), wish); !errors.Is(err, provider.ErrUnauthorized) {
			t.Errorf("launch with the role of an administrator: %v, want ErrUnauthorized", err)
		}
		vm := must(t, p, spec(t, 2))
		cloud.Rights.Set(awsclienttest.Rights(t, region, map[string]string{"cluster_id": "other"}, iam.SectionServer)...)
		if _, err := p.Create(t.Context(), spec(t, 3)); !errors.Is(err, provider.ErrUnauthorized) {
			t.Errorf("launch as another cluster's server: %v, want ErrUnauthorized", err)
		}
		if err := p.Delete(t.Context(), []provider.Ref{vm.Ref()})[0]; !errors.Is(err, provider.ErrUnauthorized) {
			t.Errorf("terminate as another cluster's server: %v, want ErrUnauthorized", err)
		}
	})
}
