package aws

import (
	"context"
	"errors"
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

// Create implements provider.Provider. EC2 deduplicates creates by client token. It refuses a
// token used with other parameters, or whose instance is gone; then the existing instance is
// looked up and returned.
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

// notLaunched handles the error of a failed launch.
func (p *Provider) notLaunched(ctx context.Context, spec provider.Spec, err error) (provider.VM, error) {
	if own, ok := awsclient.Refused(err); ok {
		return provider.VM{}, own
	}
	code, _ := awsclient.Code(err)
	switch code {
	case codeMismatch:
		p.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "client token was used with other parameters: looking for the instance",
			slog.String("instance", string(spec.ID)))
		return p.afterMismatch(ctx, spec)
	case codeTerminated:
		vm, found, err := p.ofInstance(ctx, spec)
		if err == nil && !found {
			err = fmt.Errorf("%w: instance %s was created before and has terminated: create a new instance", provider.ErrInvalid, spec.ID)
		}
		return vm, err
	default:
		return provider.VM{}, fmt.Errorf("launch instance %s: %w", spec.ID, p.tagsWanted(sorted("ec2:RunInstances", err)))
	}
}

// tagsWanted adds to an unauthorized launch which condition of the policy probably failed,
// which AWS does not tell.
func (p *Provider) tagsWanted(err error) error {
	if !errors.Is(err, provider.ErrUnauthorized) {
		return err
	}
	return fmt.Errorf("%w (the server policies require the tag %s=%s on subnets, security groups, launch templates and snapshots)",
		err, provider.TagClusterID, p.cfg.Scope.ClusterID)
}

// describe returns the instances of this scope that match filters. It calls page after each
// page.
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

// read returns the instances that match filters, of any scope.
func (p *Provider) read(ctx context.Context, filters []types.Filter, page func()) ([]provider.VM, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	const perPage = 1000 // EC2's maximum
	in := &ec2.DescribeInstancesInput{Filters: filters, MaxResults: sdk.Int32(perPage)}
	var vms []provider.VM
	seen := map[string]bool{} // pages may overlap
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

// scoped returns the filters of this scope, and more.
func (p *Provider) scoped(more ...types.Filter) []types.Filter {
	for _, tag := range [][2]string{
		{provider.TagManaged, "true"}, {provider.TagClusterID, p.cfg.Scope.ClusterID}, {provider.TagShard, p.cfg.Scope.Shard},
	} {
		more = append(more, types.Filter{Name: sdk.String("tag:" + tag[0]), Values: tag[1:]})
	}
	return more
}
