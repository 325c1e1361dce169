package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

const (
	ec2Region = "eu-central-1"
	ec2Subnet = "subnet-0000000000000000a"
	ec2Other  = "subnet-0000000000000000b"
	ec2Image  = "ami-00000000000000001"
)

// userdata gives each build user data of its own, as a fresh nonce does.
type userdata struct {
	reconcile.Builder
	built atomic.Int64
}

func (u *userdata) Build(ctx context.Context, i fleet.Instance, g fleet.Group) (provider.Spec, error) {
	spec, err := u.Builder.Build(ctx, i, g)
	built := u.built.Add(1)
	spec.InstanceType, spec.Args = "t3.small", map[string]any{"ImageId": ec2Image}
	spec.Userdata = fmt.Appendf(nil, "nonce %d\n", built)
	return spec, err
}

// ec2 makes the shard's next servers use EC2.
func (s *shard) ec2(t *testing.T) *awstest.Cloud {
	t.Helper()
	born := time.Date(1999, 1, 2, 0, 0, 0, 0, time.UTC)
	cloud := awstest.New(awstest.Config{
		Region: ec2Region,
		Subnets: []awstest.Subnet{
			{ID: ec2Subnet, VPC: "vpc-0000000a", Zone: ec2Region + "a", CIDR: netip.MustParsePrefix("10.0.0.0/24")},
			{ID: ec2Other, VPC: "vpc-0000000a", Zone: ec2Region + "a", CIDR: netip.MustParsePrefix("10.0.16.0/24")},
		},
		Images:        []awstest.Image{{ID: ec2Image, Owner: awsclienttest.Account, Arch: "x86_64", State: "available", CreatedAt: born}},
		InstanceTypes: []awstest.InstanceType{{Name: "t3.small", CPUs: 2, MemoryMiB: 2048, Arch: "x86_64"}},
		Lag:           2 * time.Second,
	})
	calls := awsclienttest.Serve(t, cloud, ec2Region)
	cfg := aws.Default(scope, slog.New(slog.DiscardHandler))
	cfg.Region, cfg.Credentials, cfg.HTTPClient = ec2Region, calls.Credentials, calls.HTTPClient
	p, err := aws.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.adjust = func(c *reconcile.Config) { c.Provider, c.Builder = p, &userdata{Builder: c.Builder} }
	s.wanted.edit(web, func(g *fleet.Group) { g.Subnets = []string{ec2Subnet, ec2Other} })
	return cloud
}

// shortOf removes the capacity of all subnets, or restores it.
func shortOf(cloud *awstest.Cloud, machines int) {
	for _, subnet := range []string{ec2Subnet, ec2Other} {
		cloud.SetCapacity("t3.small", subnet, machines)
	}
}

// made returns the machines, present and past, with the tag of an instance.
func made(cloud *awstest.Cloud, id fleet.InstanceID) (n int) {
	for _, m := range cloud.Machines() {
		if m.Tags[provider.TagInstanceID] == string(id) {
			n++
		}
	}
	return n
}

// TestCapacityComesBack: an on-demand instance that EC2 had no capacity for is created with the
// same id once there is some, although EC2 keeps the client token of each refused launch, and
// each launch has other user data. Meanwhile its error is the lack of capacity.
func TestCapacityComesBack(t *testing.T) {
	for name, disturb := range map[string]func(*shard, *awstest.Cloud){
		"refused":             func(*shard, *awstest.Cloud) {},
		"no answer, refused":  func(_ *shard, c *awstest.Cloud) { c.FailNext("RunInstances", 1, awstest.Fault{Dropped: true}) },
		"refused, a lost one": func(_ *shard, c *awstest.Cloud) { c.FailNext("RunInstances", 1, awstest.Fault{Lost: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
				cloud := s.ec2(t)
				s.wanted.settings.CreateTimeout = time.Hour
				s.size(web, 0)
				shortOf(cloud, 0)
				s.lead()
				pass(10 * time.Second)
				disturb(s, cloud)
				id := s.demand(web)
				pass(11 * time.Minute)
				if st := s.term.Health(id); !strings.Contains(st.LastError, "InsufficientInstanceCapacity") {
					t.Errorf("the last error is %q, want the lack of capacity", st.LastError)
				}
				if made(cloud, id) != 0 {
					t.Fatalf("made without capacity: %+v", cloud.Machines())
				}
				shortOf(cloud, 9)
				pass(11 * time.Minute)
				if r, _ := s.bucket.get(id); r.Provider.ID == "" || made(cloud, id) != 1 {
					t.Errorf("%d machines: %s", made(cloud, id), s.dump())
				}
			})
		})
	}
}

// TestOneMachineForOneID: despite lost replies, changing capacity and changes of leaders, no
// instance gets a second machine, and all get one eventually.
func TestOneMachineForOneID(t *testing.T) {
	for seed := range uint64(12) {
		bubble(t, fake.Config{Seed: seed}, func(t *testing.T, s *shard) {
			cloud := s.ec2(t)
			s.wanted.settings.CreateTimeout, s.wanted.settings.RegistrationTimeout = 3*time.Hour, 3*time.Hour
			s.size(web, 0)
			s.lead()
			draw := rand.New(rand.NewPCG(seed, 25))
			ids := []fleet.InstanceID{s.demand(web), s.demand(web), s.demand(web)}
			for range 20 {
				shortOf(cloud, draw.IntN(2)*draw.IntN(4))
				switch draw.IntN(4) {
				case 0:
					cloud.FailNext("RunInstances", 1, awstest.Fault{Lost: true})
				case 1:
					cloud.FailNext("RunInstances", 1, awstest.Fault{Dropped: true})
				case 2:
					cloud.FailNext("RunInstances", 1, awstest.Fault{Delay: time.Duration(draw.IntN(60)) * time.Second})
				}
				pass(time.Duration(1+draw.IntN(90)) * time.Second)
				if draw.IntN(2) == 0 {
					if err := s.stop(); err != nil && !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
					s.lead()
				}
				for _, id := range ids {
					if n := made(cloud, id); n > 1 {
						t.Fatalf("seed %d: %d machines of %s", seed, n, id)
					}
				}
			}
			shortOf(cloud, 9)
			pass(time.Hour) // the faults that are left strike one call each
			for _, id := range ids {
				if r, _ := s.bucket.get(id); r.Provider.ID == "" || made(cloud, id) != 1 {
					t.Errorf("seed %d: %d machines of %s: %s", seed, made(cloud, id), id, s.dump())
				}
			}
		})
	}
}
