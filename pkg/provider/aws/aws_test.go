package aws_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/awsclient/iam"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/provider/providertest"
)

func harness(t *testing.T, cfg awstest.Config) providertest.Harness {
	t.Helper()
	// One of the tests needs another cluster than the suite's.
	second := map[string]string{"cluster_id": scope.ClusterID + "-2"}
	cfg.Policies = append(cfg.Policies, awsclienttest.Rights(t, region, second, iam.SectionServer)...)
	return providertest.Harness{
		Around: synctest.Test,
		New: func(t *testing.T) providertest.World {
			cloud := awstest.New(cfg)
			client := serve(t, cloud)
			return providertest.World{
				Cluster:  scope.ClusterID,
				Open:     func(t *testing.T, s provider.Scope) provider.Provider { return open(t, client, s) },
				Complete: complete,
				Kill: func(t *testing.T, vm provider.VM) {
					if err := cloud.Stop(vm.ProviderID); err != nil {
						t.Fatal(err)
					}
				},
				Killed:   "Client.UserInitiatedShutdown: User initiated shutdown",
				Plant:    func(_ *testing.T, tags map[string]string) { cloud.AddMachine(large, tags, false) },
				Patience: time.Minute, Eventual: max(cfg.Lag, time.Millisecond), // EC2 guarantees no more
				Target: func(*testing.T) string {
					cloud.Balancing.Add(awstest.TargetGroup{ARN: targets, Port: 80, VPC: vpc, Tags: tags()})
					return targets
				},
				Short: func(*testing.T) func() {
					cloud.SetCapacity("t3.small", large, 0)
					return func() { cloud.SetCapacity("t3.small", large, 100) }
				},
				MissingTarget: strings.Replace(targets, "/web/", "/none/", 1),
				Subnet:        small, Images: imageCases(), InstanceTypes: instanceTypes(),
				BadArgs: []map[string]any{
					{}, {"ImageId": 1}, {"ImageId": image, "imageId": image}, {"ImageId": image, "ClientToken": "mine"},
					{"ImageId": image, "MetadataOptions": map[string]any{"HttpTokens": "never"}},
				},
			}
		},
	}
}

func instanceTypes() map[string]provider.InstanceType {
	return map[string]provider.InstanceType{
		"t3.small":  {CPUMillis: 2000, MemoryBytes: 2 << 30, Arch: "amd64"},
		"m7g.large": {CPUMillis: 2000, MemoryBytes: 8 << 30, Arch: "arm64"},
	}
}

func imageCases() []providertest.ImageCase {
	by := func(property, value string) []provider.ImageFilter {
		return []provider.ImageFilter{{Name: property, Values: []string{value}}}
	}
	named := func(name string) []provider.ImageFilter { return by("name", name) }
	return []providertest.ImageCase{
		{Query: provider.ImageQuery{Owners: []string{"self"}, Sort: "creation-date", Order: "desc"}, Want: "ami-00000000000000002"},
		{Query: provider.ImageQuery{Owners: []string{account}, Sort: "creation-date", Order: "asc"}, Want: image},
		{Query: provider.ImageQuery{Owners: []string{account}, Filters: named("agent-*"), Sort: "name", Order: "asc"}, Want: image},
		{Query: provider.ImageQuery{Owners: []string{account}, Filters: named("agent-?")}},
		{Query: provider.ImageQuery{Owners: []string{account}, Filters: by("tag:os", "a?b")}, Want: image},
		{Query: provider.ImageQuery{Owners: []string{account}, Filters: named("agent-3")}}, // pending
		{Query: provider.ImageQuery{Owners: []string{"amazon"}}},
		{Query: provider.ImageQuery{Filters: by("owner-id", "210987654321")}, Want: "ami-00000000000000004"},
	}
}

func TestConformance(t *testing.T) {
	t.Run("AtOnce", func(t *testing.T) { providertest.Run(t, harness(t, cloudConfig(t))) })
	t.Run("Eventual", func(t *testing.T) {
		cfg := cloudConfig(t)
		cfg.Lag, cfg.Boot, cfg.Shutdown, cfg.Seed = 300*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond, 1
		cfg.Draining = time.Second
		providertest.Run(t, harness(t, cfg))
	})
}
