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
	"github.com/nstance/nstance/pkg/retry"
)

// An instance that a client token stands for is looked for during a minute: reads lag.
const (
	lookups      = 7
	lookupsFirst = time.Second
	lookupsLimit = 30 * time.Second
)

// Create implements provider.Provider. EC2 knows a repeated create by its client token.
// One that was made with other parameters it refuses, and one whose instance is gone
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
		return p.byToken(ctx, spec, lookups)
	case codeTerminated:
		vm, found := p.byToken(ctx, spec, 1)
		if errors.Is(found, errNoneYet) {
			return vm, fmt.Errorf("%w: instance %s was made before, ended, and is forgotten: want a new instance", provider.ErrInvalid, spec.ID)
		}
		return vm, found
	default:
		return provider.VM{}, fmt.Errorf("launch instance %s: %w", spec.ID, sorted("ec2:RunInstances", err))
	}
}

// errNoneYet says that no instance can be seen. It has no kind: there may be one.
var errNoneYet = errors.New("no instance can be seen that was made with its client token")

// byToken returns the instance that a spec's client token made, asking for it some times.
func (p *Provider) byToken(ctx context.Context, spec provider.Spec, times int) (provider.VM, error) {
	backoff := retry.Backoff{First: lookupsFirst, Limit: lookupsLimit}
	filters := p.scoped(types.Filter{Name: sdk.String("client-token"), Values: []string{clientToken(spec)}})
	for n := 1; ; n++ {
		vms, err := p.describe(ctx, filters, func() {})
		if err != nil {
			return provider.VM{}, unknown(fmt.Errorf("look for instance %s by its client token: %w", spec.ID, err))
		}
		for _, vm := range vms {
			if vm.ID == spec.ID {
				return vm, nil
			}
		}
		if n == times {
			return provider.VM{}, fmt.Errorf("launch instance %s: %w", spec.ID, errNoneYet)
		}
		if err := retry.Wait(ctx, backoff.Delay(n)); err != nil {
			return provider.VM{}, fmt.Errorf("launch instance %s: %w: %w", spec.ID, errNoneYet, err)
		}
	}
}

// unknown takes the kind from a read's error: what the launch did is not known, though
// the read is certain to have made nothing. That a caller gave up stays visible.
func unknown(err error) error {
	if provider.Definite(err) {
		return errors.New(err.Error())
	}
	return err
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
