package aws

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"

	"github.com/nstance/nstance/pkg/awscall"
	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// This file is target groups of Elastic Load Balancing, whose targets are instances.

// versionELB is the API's: https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/
const versionELB = "2015-12-01"

// targetGroupARN has the region, and the group's name and number after it.
var targetGroupARN = regexp.MustCompile(`^arn:aws[a-z-]*:elasticloadbalancing:([a-z0-9-]+):\d{12}:` +
	`targetgroup/[A-Za-z0-9-]{1,32}/[0-9a-f]+$`)

// balancing calls an action of Elastic Load Balancing.
type balancing func(ctx context.Context, version, action string, params url.Values, out any, how awscall.Attempts) error

// Register implements provider.LoadBalancer. Which port it is the target group says.
func (p *Provider) Register(ctx context.Context, target string, vm provider.Ref) error {
	if err := p.checkTarget(target); err != nil {
		return err
	}
	if err := p.checkServes(ctx, vm); err != nil {
		return err
	}
	return p.changeTarget(ctx, "RegisterTargets", target, vm)
}

// Deregister implements provider.LoadBalancer. Whose the VM is isn't looked at: one that
// is gone has no tags any more, and has to leave its target groups all the same.
func (p *Provider) Deregister(ctx context.Context, target string, vm provider.Ref) error {
	if err := p.checkTarget(target); err != nil {
		return err
	}
	if err := vm.Check(); err != nil {
		return err
	}
	if !awsclient.IsInstanceID(vm.ProviderID) {
		return nil // such a target there can't be
	}
	err := p.changeTarget(ctx, "DeregisterTargets", target, vm)
	if code, _ := awsclient.Code(err); code == codeInvalidTarget {
		return nil
	}
	return err
}

// checkTarget reports why a target can't be one of this region.
func (p *Provider) checkTarget(target string) error {
	m := targetGroupARN.FindStringSubmatch(target)
	if m == nil {
		return fmt.Errorf("%w: target %.200q: want the ARN of a target group, such as "+
			"arn:aws:elasticloadbalancing:%s:123456789012:targetgroup/web/0123456789abcdef", provider.ErrInvalid, target, p.region)
	}
	if m[1] != p.region {
		return fmt.Errorf("%w: target %s: it is in %s: want one in %s, where the instances are", provider.ErrInvalid, target, m[1], p.region)
	}
	return nil
}

// checkServes reports why a VM can't be a target. Reads lag: one that was just made may
// not be seen, and one that was seen to run may have ended, which EC2 tells its own.
func (p *Provider) checkServes(ctx context.Context, vm provider.Ref) error {
	switch f := p.find(ctx, []provider.Ref{vm})[0]; {
	case f.err != nil:
		return f.err
	case len(f.vms) == 0 && (len(p.known.named(vm)) == 0 || !awsclient.IsInstanceID(vm.ProviderID)):
		return fmt.Errorf("%w: instance %.80q, EC2 instance %.80q: there is no such one in this shard", provider.ErrInvalid, vm.ID, vm.ProviderID)
	case len(f.vms) > 0 && !f.vms[0].State.Alive():
		return fmt.Errorf("%w: EC2 instance %s is %s: want one that runs", provider.ErrInvalid, vm.ProviderID, f.vms[0].State)
	default:
		return nil
	}
}

// changeTarget makes one attempt to register or deregister a VM.
func (p *Provider) changeTarget(ctx context.Context, action, target string, vm provider.Ref) error {
	params := url.Values{"TargetGroupArn": {target}, "Targets.member.1.Id": {vm.ProviderID}}
	err := sorted("elasticloadbalancing:"+action, p.api.balancing(ctx, versionELB, action, params, nil, attempt()))
	if code, _ := awsclient.Code(err); code != "" {
		return fmt.Errorf("%s in %s: %w", vm.ProviderID, target, err)
	}
	return err
}

// health is a target as Elastic Load Balancing sees it.
type health struct {
	ID     string `xml:"Target>Id"`
	State  string `xml:"TargetHealth>State"`
	Reason string `xml:"TargetHealth>Reason"`
}

// Targets implements provider.LoadBalancer.
func (p *Provider) Targets(ctx context.Context, target string) ([]string, error) {
	if err := p.checkTarget(target); err != nil {
		return nil, err
	}
	const action = "DescribeTargetHealth" // which has no pages
	var out struct {
		Targets []health `xml:"DescribeTargetHealthResult>TargetHealthDescriptions>member"`
	}
	err := p.api.balancing(ctx, versionELB, action, url.Values{"TargetGroupArn": {target}}, &out, awscall.Attempts{})
	if err != nil {
		return nil, fmt.Errorf("describe targets of %s: %w", target, sorted("elasticloadbalancing:"+action, err))
	}
	var ids []string
	for _, t := range out.Targets {
		if t.ID == "" {
			return nil, errors.New("describe targets of " + target + ": there is one without an id")
		}
		if t.State != "draining" && t.Reason != "Target.NotRegistered" {
			ids = append(ids, t.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil // one may be registered with several ports
}
