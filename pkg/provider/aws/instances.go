package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// Get implements provider.Provider.
func (p *Provider) Get(ctx context.Context, refs []provider.Ref) []provider.Answer {
	answers := make([]provider.Answer, len(refs))
	for n, f := range p.find(ctx, refs) {
		switch {
		case f.err != nil:
			answers[n].Err = f.err
		case len(f.vms) == 0:
			answers[n].Err = fmt.Errorf("%w: instance %.80q, EC2 instance %.80q", provider.ErrNotFound, refs[n].ID, refs[n].ProviderID)
		default:
			answers[n].VM = f.vms[0]
			answers[n].VM.Tags = maps.Clone(f.vms[0].Tags) // refs may have duplicates
			answers[n].VM.Addresses, answers[n].VM.DNSNames = slices.Clone(f.vms[0].Addresses), slices.Clone(f.vms[0].DNSNames)
		}
	}
	return answers
}

// List implements provider.Provider. It omits terminated instances.
func (p *Provider) List(ctx context.Context) ([]provider.VM, error) {
	filters := p.scoped(types.Filter{
		Name: sdk.String("instance-state-name"), Values: []string{"pending", "running", "shutting-down", "stopping", "stopped"},
	})
	vms, err := p.describe(ctx, filters, func() { provider.Listed(ctx) })
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	p.known.forget(time.Now())
	p.searches.forget(time.Now())
	return vms, nil
}

// found is the result for one reference: one VM, unless a stray instance has the same instance
// ID.
type found struct {
	vms []provider.VM // living ones first, gone ones last
	err error
}

// find looks up refs with at most two calls: one for those with a provider ID, one for the
// others. Malformed IDs are not used as filter values, in which a star is a wildcard.
func (p *Provider) find(ctx context.Context, refs []provider.Ref) []found {
	out := make([]found, len(refs))
	if err := provider.CheckBatch(refs); err != nil {
		return slices.Repeat([]found{{err: err}}, len(refs))
	}
	var byProvider, byID group
	for n, ref := range refs {
		switch _, malformed := fleet.ParseID(string(ref.ID)); {
		case ref.Check() != nil:
			out[n].err = ref.Check()
		case awsclient.IsInstanceID(ref.ProviderID):
			byProvider.add(n, ref.ProviderID)
		case ref.ProviderID == "" && malformed == nil:
			byID.add(n, string(ref.ID))
		}
	}
	p.lookUp(ctx, "instance-id", byProvider, refs, out)
	p.lookUp(ctx, "tag:"+provider.TagInstanceID, byID, refs, out)
	return out
}

// group is a set of references that are looked up together.
type group struct {
	at     []int // their indices
	values []string
}

func (g *group) add(at int, value string) {
	g.at = append(g.at, at)
	if !slices.Contains(g.values, value) {
		g.values = append(g.values, value)
	}
}

// lookUp fills in the results of a group.
func (p *Provider) lookUp(ctx context.Context, filter string, g group, refs []provider.Ref, out []found) {
	if len(g.at) == 0 {
		return
	}
	vms, err := p.describe(ctx, p.scoped(types.Filter{Name: &filter, Values: g.values}), func() {})
	if err != nil {
		err = fmt.Errorf("describe instances: %w", err)
	}
	provider.SortLiving(vms)
	for _, n := range g.at {
		out[n].err = err
		for _, vm := range vms {
			if refs[n].Names(vm) {
				out[n].vms = append(out[n].vms, vm)
			}
		}
	}
}

// Delete implements provider.Provider. An instance that reads don't show does not exist, unless
// they have shown it before: then it is looked up regardless of its current tags.
func (p *Provider) Delete(ctx context.Context, refs []provider.Ref) []error {
	errs, finds := make([]error, len(refs)), p.find(ctx, refs)
	var shown, unseen []string
	for n, f := range finds {
		ids := &shown
		if errs[n] = f.err; f.err == nil && len(f.vms) == 0 {
			finds[n].vms, ids = p.known.named(refs[n]), &unseen
		}
		for _, vm := range finds[n].vms {
			if vm.State.Exists() && vm.State != provider.StateDeleting && !slices.Contains(*ids, vm.ProviderID) {
				*ids = append(*ids, vm.ProviderID)
			}
		}
	}
	failed := p.terminate(ctx, shown)
	maps.Copy(failed, p.terminateUnseen(ctx, unseen))
	for n, f := range finds {
		for _, vm := range f.vms {
			if err := failed[vm.ProviderID]; err != nil && errs[n] == nil {
				errs[n] = err
			}
		}
	}
	return errs
}

// terminateUnseen terminates instances that reads of this scope showed before but don't show
// now: right after a launch, after their tags changed, or when EC2 is about to drop them,
// already without tags. An instance with other tags no longer belongs to this scope; one
// without tags may be too new to be shown with them. Each is terminated in a call of its own: a
// tag-conditioned permission is denied for an untagged instance, and then for the whole call.
func (p *Provider) terminateUnseen(ctx context.Context, ids []string) map[string]error {
	failed := map[string]error{}
	if len(ids) == 0 {
		return failed
	}
	vms, err := p.read(ctx, []types.Filter{{Name: sdk.String("instance-id"), Values: ids}}, func() {})
	for _, id := range ids {
		n := slices.IndexFunc(vms, func(vm provider.VM) bool { return vm.ProviderID == id })
		switch {
		case err != nil:
			failed[id] = fmt.Errorf("describe instances: %w", err)
		case n >= 0 && !vms[n].State.Exists(), n >= 0 && len(vms[n].Tags) > 0 && !p.cfg.Scope.Owns(vms[n].Tags):
			p.known.drop(id)
		default:
			maps.Copy(failed, p.terminate(ctx, []string{id}))
		}
	}
	return failed
}

// terminate terminates instances and returns the errors by ID. A batch refused for one of its
// IDs is split in two; an error that would affect all IDs ends it.
func (p *Provider) terminate(ctx context.Context, ids []string) map[string]error {
	failed := map[string]error{}
	for queue := [][]string{ids}; len(queue) > 0; {
		batch := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if len(batch) == 0 {
			continue
		}
		_, err := p.api.terminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: batch}, mutation)
		err = sorted("ec2:TerminateInstances", err)
		switch {
		case err == nil:
		case !perID(err):
			for _, id := range slices.Concat(append(queue, batch)...) {
				failed[id] = told(id, err)
			}
			return failed
		case len(batch) > 1:
			half := len(batch) / 2
			queue = append(queue, batch[half:], batch[:half])
		case !notThere(err):
			failed[batch[0]] = told(batch[0], err)
		}
	}
	return failed
}
