package aws_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/awsclient/iam"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/provider/aws/awstest/policy"
)

// TestEachStatementIsNeeded: a server's policy allows all that it does, and without any of the
// statements something is refused.
func TestEachStatementIsNeeded(t *testing.T) {
	whole := awsclienttest.Rights(t, region, nil, iam.SectionServer)[0]
	// These are needed only for S3, which object/s3 calls, and in an account that never had a spot
	// instance.
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

// everything does all that a server does with AWS, under a policy. It returns all refusals.
func everything(t *testing.T, allowed policy.Policy) error {
	t.Helper()
	var refused []error
	try := func(err error) { refused = append(refused, err) }
	for _, m := range []mode{modes()[2], modes()[5]} { // both ways, with both families
		s := newShard(t, m, func(cfg *awstest.Config) {
			cfg.TargetGroups = []awstest.TargetGroup{{ARN: targets, Port: 80, VPC: vpc, Tags: tags()}}
		})
		a, b := s.host(t), s.host(t)
		s.IAM.SetPolicies(append(awsclienttest.Rights(t, region, nil, iam.SectionSnapshots), allowed)...)
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

// TestRightsEndWithTheCluster: resources of another cluster, and other roles than the instances',
// can't be used.
func TestRightsEndWithTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		wish := spec(t, 1)
		wish.Args = map[string]any{"ImageId": image, "IamInstanceProfile": map[string]any{"Name": "admin"}}
		if _, err := p.Create(t.Context(), wish); !errors.Is(err, provider.ErrUnauthorized) {
			t.Errorf("launch with the role of an administrator: %v, want ErrUnauthorized", err)
		}
		vm := must(t, p, spec(t, 2))
		cloud.IAM.SetPolicies(awsclienttest.Rights(t, region, map[string]string{"cluster_id": "other"}, iam.SectionServer)...)
		if _, err := p.Create(t.Context(), spec(t, 3)); !errors.Is(err, provider.ErrUnauthorized) {
			t.Errorf("launch as another cluster's server: %v, want ErrUnauthorized", err)
		}
		if err := p.Delete(t.Context(), []provider.Ref{vm.Ref()})[0]; !errors.Is(err, provider.ErrUnauthorized) {
			t.Errorf("terminate as another cluster's server: %v, want ErrUnauthorized", err)
		}
	})
}

// TestLaunchesUseWhatIsTheClusters: a launch can use subnets, security groups and snapshots of its
// cluster, but none of another one or without a cluster.
func TestLaunchesUseWhatIsTheClusters(t *testing.T) {
	group, snapshot := "sg-0000000a", "snap-0000000a"
	args := map[string]any{
		"ImageId": image, "SecurityGroupIds": []any{group},
		"BlockDeviceMappings": []any{map[string]any{"DeviceName": "/dev/sdb", "Ebs": map[string]any{"SnapshotId": snapshot}}},
	}
	for _, theirs := range []map[string]string{nil, {provider.TagClusterID: "other"}, {provider.TagManaged: "true"}} {
		for _, id := range []string{"", large, group, snapshot} {
			synctest.Test(t, func(t *testing.T) {
				_, p := newWorld(t, func(cfg *awstest.Config) {
					cfg.Policies = append(cfg.Policies, awsclienttest.Rights(t, region, nil, iam.SectionSnapshots)...)
					if id != "" {
						cfg.Tags[id] = theirs
					}
				})
				wish := spec(t, 1)
				wish.Args = args
				_, err := p.Create(t.Context(), wish)
				if id == "" && err == nil {
					return
				}
				if !errors.Is(err, provider.ErrUnauthorized) || !strings.Contains(err.Error(), id) ||
					!strings.Contains(err.Error(), "require the tag nstance:cluster-id="+scope.ClusterID) {
					t.Errorf("launch with %q of %v: %v", id, theirs, err)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		_, p := newWorld(t, nil)
		wish := spec(t, 1)
		wish.Args = args
		if _, err := p.Create(t.Context(), wish); !errors.Is(err, provider.ErrUnauthorized) {
			t.Errorf("launch from a snapshot of the cluster without the policy for it: %v, want ErrUnauthorized", err)
		}
	})
}

// TestLaunchRights: permissions that no call of this provider needs are not granted either.
func TestLaunchRights(t *testing.T) {
	rights := awsclienttest.Rights(t, region, nil, iam.SectionServer)
	of := func(kind, id string) string { return "arn:aws:ec2:" + region + ":" + account + ":" + kind + "/" + id }
	tags := func(cluster string) map[string]string {
		return map[string]string{"aws:ResourceTag/nstance:cluster-id": cluster, "aws:ResourceTag/nstance:managed": "true"}
	}
	reservation := "arn:aws:ec2:" + region + ":210987654321:capacity-reservation/cr-1"
	for _, c := range []struct {
		name, arn string
		tags      map[string]string
		want      bool
	}{
		{"a template of the cluster", of("launch-template", "lt-1"), tags(scope.ClusterID), true},
		{"another cluster's template", of("launch-template", "lt-1"), tags("other"), false},
		{"a template of no cluster", of("launch-template", "lt-1"), nil, false},
		{"another account's subnet", "arn:aws:ec2:" + region + ":210987654321:subnet/subnet-1", tags(scope.ClusterID), false},
		{"a placement group of no cluster", of("placement-group", "pg-1"), nil, false},
		{"a reservation of the cluster", reservation, tags(scope.ClusterID), true},
		{"a reservation of another team", reservation, nil, false},
		{"the leader's interface of another cluster", of("network-interface", "eni-1"), tags("other"), false},
		{"the leader's interface of this one", of("network-interface", "eni-1"), tags(scope.ClusterID), false},
		{"an interface that the launch makes", of("network-interface", "*"), nil, true},
		{"a volume that the launch makes", of("volume", "*"), nil, true},
		{"a snapshot of the cluster, where args name none", "arn:aws:ec2:" + region + "::snapshot/snap-1", tags(scope.ClusterID), false},
	} {
		if got := policy.Allowed(rights, policy.Request{Action: "ec2:RunInstances", Resource: c.arn, Context: c.tags}); got != c.want {
			t.Errorf("%s: allowed %v, want %v", c.name, got, c.want)
		}
	}
}
