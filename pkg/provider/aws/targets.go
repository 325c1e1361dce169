package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// This file has the target groups of Elastic Load Balancing, with instances as targets.

// targetGroupARN captures the region; the group's name and number follow.
var targetGroupARN = regexp.MustCompile(`^arn:aws[a-z-]*:elasticloadbalancing:([a-z0-9-]+):\d{12}:` +
	`targetgroup/[A-Za-z0-9-]{1,32}/[0-9a-f]+$`)

// Register implements provider.LoadBalancer. The port is the target group's.
func (p *Provider) Register(ctx context.Context, target string, vm provider.Ref) error {
	if err := p.checkTarget(target); err != nil {
		return err
	}
	if err := p.checkServes(ctx, vm); err != nil {
		return err
	}
	in := elb.RegisterTargetsInput{TargetGroupArn: &target, Targets: []types.TargetDescription{{Id: &vm.ProviderID}}}
	_, err := p.api.registerTargets(ctx, &in, change)
	return ofTarget("elasticloadbalancing:RegisterTargets", target, vm, err)
}

// Deregister implements provider.LoadBalancer. It does not check the VM's scope: an instance
// that is gone has no tags any more, but must be deregistered nonetheless.
func (p *Provider) Deregister(ctx context.Context, target string, vm provider.Ref) error {
	if err := p.checkTarget(target); err != nil {
		return err
	}
	if err := vm.Check(); err != nil {
		return err
	}
	if !awsclient.IsInstanceID(vm.ProviderID) {
		return nil // no such target can exist
	}
	in := elb.DeregisterTargetsInput{TargetGroupArn: &target, Targets: []types.TargetDescription{{Id: &vm.ProviderID}}}
	_, err := p.api.deregisterTargets(ctx, &in, change)
	if awsclient.Coded(err, codeInvalidTarget) {
		return nil
	}
	return ofTarget("elasticloadbalancing:DeregisterTargets", target, vm, err)
}

// checkTarget returns an error if target is not a target group ARN of this region.
func (p *Provider) checkTarget(target string) error {
	m := targetGroupARN.FindStringSubmatch(target)
	if m == nil {
		return fmt.Errorf("%w: target %.200q: want the ARN of a target group, such as "+
			"arn:aws:elasticloadbalancing:%s:123456789012:targetgroup/web/0123456789abcdef", provider.ErrInvalid, target, p.region)
	}
	if m[1] != p.region {
		return fmt.Errorf("%w: target %s is in %s: want a target group in %s", provider.ErrInvalid, target, m[1], p.region)
	}
	return nil
}

// checkServes returns an error if a VM can't be a target. Reads are stale at times: a new
// instance may not be visible, and one shown as running may have ended, which EC2's own answer
// shows.
func (p *Provider) checkServes(ctx context.Context, vm provider.Ref) error {
	switch f := p.find(ctx, []provider.Ref{vm})[0]; {
	case f.err != nil:
		return f.err
	case len(f.vms) == 0 && (len(p.known.named(vm)) == 0 || !awsclient.IsInstanceID(vm.ProviderID)):
		return fmt.Errorf("%w: instance %.80q, EC2 instance %.80q: not found in this shard", provider.ErrInvalid, vm.ID, vm.ProviderID)
	case len(f.vms) > 0 && !f.vms[0].State.Alive():
		return fmt.Errorf("%w: EC2 instance %s is %s: want a running instance", provider.ErrInvalid, vm.ProviderID, f.vms[0].State)
	default:
		return nil
	}
}

// ofTarget wraps a failed change of a target in its kind, with the target if the service
// refused it.
func ofTarget(action, target string, vm provider.Ref, err error) error {
	err = sorted(action, err)
	if code, _ := awsclient.Code(err); code != "" {
		return fmt.Errorf("%s in %s: %w", vm.ProviderID, target, err)
	}
	return err
}

// Targets implements provider.LoadBalancer.
func (p *Provider) Targets(ctx context.Context, target string) ([]string, error) {
	if err := p.checkTarget(target); err != nil {
		return nil, err
	}
	out, err := p.api.targetHealth(ctx, &elb.DescribeTargetHealthInput{TargetGroupArn: &target}) // not paginated
	if err != nil {
		return nil, fmt.Errorf("describe targets of %s: %w", target, sorted("elasticloadbalancing:DescribeTargetHealth", err))
	}
	var ids []string
	for _, t := range out.TargetHealthDescriptions {
		if t.Target == nil || sdk.ToString(t.Target.Id) == "" {
			return nil, errors.New("describe targets of " + target + ": target without an ID")
		}
		health := cmp.Or(t.TargetHealth, &types.TargetHealth{})
		if health.State != types.TargetHealthStateEnumDraining && health.Reason != types.TargetHealthReasonEnumNotRegistered {
			ids = append(ids, *t.Target.Id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil // may be registered with several ports
}
