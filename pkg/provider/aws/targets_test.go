package aws_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// balanced is a cloud with one target group and two running VMs.
func balanced(t *testing.T) (cloud *awstest.Cloud, p *aws.Provider, vms []provider.VM) {
	t.Helper()
	cloud, p = newWorld(t, func(cfg *awstest.Config) {
		cfg.TargetGroups, cfg.TargetLimit = []awstest.TargetGroup{{ARN: targets, Port: 80, VPC: vpc, Tags: tags()}}, 1
	})
	return cloud, p, []provider.VM{must(t, p, spec(t, 1)), must(t, p, spec(t, 2))}
}

func TestTargetsThatThereCanNotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p, vms := balanced(t)
		for target, says := range map[string]string{
			"":    "want the ARN of a target group",
			"web": "want the ARN of a target group",
			"arn:aws:ec2:" + region + ":" + account + ":instance/i-1":   "want the ARN of a target group",
			strings.Replace(targets, region, "us-east-1", 1):            "is in us-east-1: want a target group in " + region,
			strings.Replace(targets, "targetgroup", "loadbalancer", 1):  "want the ARN of a target group",
			targets + "&Action=DeregisterTargets":                       "want the ARN of a target group",
			strings.Replace(targets, ":"+account, ":1234567890123", 1):  "want the ARN of a target group",
			strings.Replace(targets, "arn:aws", "arn:aws-cn", 1) + "/x": "want the ARN of a target group",
		} {
			_, listed := p.Targets(t.Context(), target)
			for _, err := range []error{
				p.Register(t.Context(), target, vms[0].Ref()), p.Deregister(t.Context(), target, vms[0].Ref()), listed,
			} {
				if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), says) {
					t.Errorf("%q: %v, want ErrInvalid that says %q", target, err, says)
				}
			}
		}
		if n := len(cloud.Calls("RegisterTargets")) + len(cloud.Calls("DeregisterTargets")); n != 0 {
			t.Errorf("%d calls were made", n)
		}
	})
}

// TestTargetErrors: calls that change something are sent once, reads are retried.
func TestTargetErrors(t *testing.T) {
	for _, c := range []struct {
		fault awstest.Fault
		kind  error // nil: unknown
		reads int
	}{
		{awstest.Fault{Code: "Throttling", Status: 400}, provider.ErrThrottled, 4},
		{awstest.Fault{Code: "AccessDenied", Status: 403}, provider.ErrUnauthorized, 1},
		{awstest.Fault{Code: "TooManyRegistrationsForTargetId", Status: 400}, provider.ErrQuota, 1},
		{awstest.Fault{Code: "ValidationError", Status: 400}, provider.ErrInvalid, 1},
		{awstest.Fault{Code: "InternalFailure", Status: 500}, nil, 4},
		{awstest.Fault{Dropped: true}, nil, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			cloud, p, vms := balanced(t)
			cloud.FailNext("RegisterTargets", 1, c.fault)
			cloud.FailNext("DeregisterTargets", 1, c.fault)
			cloud.FailNext("DescribeTargetHealth", 4, c.fault)
			_, listed := p.Targets(t.Context(), targets)
			for action, err := range map[string]error{
				"RegisterTargets":      p.Register(t.Context(), targets, vms[0].Ref()),
				"DeregisterTargets":    p.Deregister(t.Context(), targets, vms[0].Ref()),
				"DescribeTargetHealth": listed,
			} {
				want := 1
				if action == "DescribeTargetHealth" {
					want = c.reads
				}
				if n := len(cloud.Calls(action)); err == nil || n != want {
					t.Errorf("%+v, %s: %v after %d calls, want an error after %d", c.fault, action, err, n, want)
				}
				for _, kind := range kinds() {
					if errors.Is(err, kind) != errors.Is(c.kind, kind) {
						t.Errorf("%+v, %s is %v, want %v", c.fault, action, err, c.kind)
					}
				}
			}
		})
	}
}

func TestTargetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p, vms := balanced(t)
		cloud.FailNext("RegisterTargets", 1, awstest.Fault{Lost: true})
		lost := p.Register(t.Context(), targets, vms[0].Ref())
		again, full := p.Register(t.Context(), targets, vms[0].Ref()), p.Register(t.Context(), targets, vms[1].Ref())
		if lost == nil || again != nil || !errors.Is(full, provider.ErrQuota) {
			t.Errorf("a reply that is lost: %v, once more: %v, another one: %v; want ErrQuota", lost, again, full)
		}
		cloud.FailNext("DescribeTargetHealth", 3, awstest.Fault{Code: "ServiceUnavailable", Status: 503})
		if ids, err := p.Targets(t.Context(), targets); err != nil || !slices.Equal(ids, []string{vms[0].ProviderID}) {
			t.Errorf("registered: %v, %v", ids, err)
		}
		cloud.FailNext("RegisterTargets", 1, awstest.Fault{Code: "AccessDenied", Status: 403, Message: "no"})
		err := p.Register(t.Context(), targets, vms[0].Ref())
		if err == nil || !strings.Contains(err.Error(), "elasticloadbalancing:RegisterTargets is not allowed: AccessDenied: no") {
			t.Errorf("not allowed: %v, want the action's name", err)
		}
	})
}

// TestTargetsOfMachinesThatEnd: a stopped machine can be deregistered, but not registered.
func TestTargetsOfMachinesThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p, vms := balanced(t)
		if err := errors.Join(p.Register(t.Context(), targets, vms[0].Ref()), cloud.Stop(vms[0].ProviderID)); err != nil {
			t.Fatal(err)
		}
		err := p.Register(t.Context(), targets, vms[0].Ref())
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "stopped") {
			t.Errorf("register what has stopped: %v", err)
		}
		if ids, err := p.Targets(t.Context(), targets); err != nil || len(ids) != 1 {
			t.Errorf("what has stopped is registered: %v, %v", ids, err)
		}
		for _, ref := range []provider.Ref{vms[0].Ref(), {ID: vms[0].ID}, {ProviderID: "i-00000000000000000"}} {
			if err := p.Deregister(t.Context(), targets, ref); err != nil {
				t.Errorf("deregister %v: %v", ref, err)
			}
		}
		if err := p.Deregister(t.Context(), targets, provider.Ref{}); !errors.Is(err, provider.ErrInvalid) {
			t.Errorf("deregister nothing: %v", err)
		}
		if ids, err := p.Targets(t.Context(), targets); err != nil || len(ids) != 0 {
			t.Errorf("registered: %v, %v", ids, err)
		}
	})
}

// TestRegisterWhatIsNotSeenYet: a machine that was just created can be registered although reads
// don't show it yet; one that was never seen can't.
func TestRegisterWhatIsNotSeenYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := newWorld(t, func(cfg *awstest.Config) {
			cfg.TargetGroups, cfg.Lag = []awstest.TargetGroup{{ARN: targets, Port: 80, VPC: vpc, Tags: tags()}}, time.Hour
		})
		vm := must(t, p, spec(t, 1))
		if err := p.Register(t.Context(), targets, vm.Ref()); err != nil {
			t.Errorf("register what reads don't show yet: %v", err)
		}
		for _, ref := range []provider.Ref{{ProviderID: "i-00000000000000000"}, {ID: vm.ID}, {ProviderID: "no-such-vm"}} {
			if err := p.Register(t.Context(), targets, ref); !errors.Is(err, provider.ErrInvalid) {
				t.Errorf("register %v: %v, want ErrInvalid", ref, err)
			}
		}
	})
}
