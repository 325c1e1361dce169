package aws

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// Create implements provider.Provider. EC2 knows a repeated create by its client token.
// One that came with other parameters before it refuses, and one whose instance is gone
// too: what there is of that instance is returned then.
func (p *Provider) Create(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	in, err := launch(p.cfg.Scope, spec)
	if err != nil {
		return provider.VM{}, err
	}
	if err := ctx.Err(); err != nil {
		return provider.VM{}, err
	}
	out, err := p.api.runInstances(ctx, in, mutation)
	if err != nil {
		return p.notLaunched(ctx, spec, err)
	}
	if len(out.Instances) != 1 {
		return provider.VM{}, fmt.Errorf("launch instance %s: EC2 answers with %d instances: want 1", spec.ID, len(out.Instances))
	}
	vm := vmOf(out.Instances[0])
	p.known.note([]provider.VM{vm}, time.Now())
	return vm, nil
}

// notLaunched finds out what a failed launch means.
func (p *Provider) notLaunched(ctx context.Context, spec provider.Spec, err error) (provider.VM, error) {
	if own, ok := awsclient.Refused(err); ok {
		return provider.VM{}, own
	}
	code, _ := awsclient.Code(err)
	switch code {
	case codeMismatch:
		p.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "instance was asked for with other parameters before: looking for it",
			slog.String("instance", string(spec.ID)))
		return p.afterMismatch(ctx, spec)
	case codeTerminated:
		vm, found, err := p.ofInstance(ctx, spec)
		if err == nil && !found {
			err = fmt.Errorf("%w: instance %s was made before, ended, and is forgotten: want a new instance", provider.ErrInvalid, spec.ID)
		}
		return vm, err
	default:
		return provider.VM{}, fmt.Errorf("launch instance %s: %w", spec.ID, sorted("ec2:RunInstances", err))
	}
}

// describe returns the instances of this scope that match filters, and calls page after
// each page.
func (p *Provider) describe(ctx context.Context, filters []types.Filter, page func()) ([]provider.VM, error) {
	vms, err := p.read(ctx, filters, page)
	if err != nil {
		return nil, err
	}
	vms = slices.DeleteFunc(vms, func(vm provider.VM) bool { return !p.cfg.Scope.Owns(vm.Tags) })
	p.known.note(vms, time.Now())
	provider.Sort(vms)
	return vms, nil
}

// read returns the instances that match filters, whosever they are.
func (p *Provider) read(ctx context.Context, filters []types.Filter, page func()) ([]provider.VM, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	const perPage = 1000 // as many as EC2 gives at once
	in := &ec2.DescribeInstancesInput{Filters: filters, MaxResults: sdk.Int32(perPage)}
	var vms []provider.VM
	seen := map[string]bool{} // pages are of different moments
	if err := pages(&in.NextToken, func() (*string, error) {
		out, err := p.api.describeInstances(ctx, in)
		if err != nil {
			return nil, sorted("ec2:DescribeInstances", err)
		}
		page()
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				if vm := vmOf(i); !seen[vm.ProviderID] {
					seen[vm.ProviderID] = true
					vms = append(vms, vm)
				}
			}
		}
		return out.NextToken, nil
	}); err != nil {
		return nil, err
	}
	return vms, nil
}

// scoped are the filters that select what is of this scope, and more.
func (p *Provider) scoped(more ...types.Filter) []types.Filter {
	for _, tag := range [][2]string{
		{provider.TagManaged, "true"}, {provider.TagClusterID, p.cfg.Scope.ClusterID}, {provider.TagShard, p.cfg.Scope.Shard},
	} {
		more = append(more, types.Filter{Name: sdk.String("tag:" + tag[0]), Values: tag[1:]})
	}
	return more
}
