package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/problems"
)

// This file ensures that a create of unknown outcome is repeated in the same subnet, by every
// later leader too: the record names the subnet before the provider is called, and another
// subnet is tried only when no VM can exist in the previous one.

// place chooses the subnet of a create that has none yet, and writes it into the record if
// that exists already.
func (l *launcher) place(ctx context.Context, x *launch, recorded bool) error {
	if x.record.Provider.Subnet != "" {
		return nil
	}
	subnet, err := l.subnets.Place(ctx, x.group)
	if err != nil {
		return createProblem(x, err)
	}
	if recorded {
		return l.assign(ctx, x, subnet, x.record.Provider.CreateAttempt)
	}
	l.mu.Lock() // passes read x.record
	defer l.mu.Unlock()
	x.record.Provider.Subnet = subnet
	return nil
}

// createProblem adds the reason and the instance to the error of a failed create.
func createProblem(x *launch, err error) error {
	otherwise := problems.ReasonProvider
	switch {
	case errors.Is(err, provider.ErrSubnetFull):
		otherwise = problems.ReasonSubnetFull
	case errors.Is(err, provider.ErrQuota):
		otherwise = problems.ReasonQuota
	}
	return problems.Because(problems.ReasonOf(err, otherwise), fmt.Errorf("create instance %s: %w", x.record.ID, err))
}

// callCreate calls create and records when, unless it was definitely refused.
func (l *launcher) callCreate(ctx context.Context, x *launch, spec provider.Spec) (vm provider.VM, asked time.Time, err error) {
	vm, asked, err = l.create(ctx, x, spec)
	if !provider.Definite(err) {
		l.observed.CreateCalled(x.record.ID, asked)
	}
	return vm, asked, err
}

// create creates the VM in the subnet of the record. If that is full, it tries the next subnet
// with the next attempt, unless an earlier create may have made the VM in the full one.
func (l *launcher) create(ctx context.Context, x *launch, spec provider.Spec) (vm provider.VM, asked time.Time, err error) {
	turn := true // the launch claimed one already
	for range max(1, len(x.group.Subnets)) {
		if vm, asked, err = l.createThere(ctx, x, spec, turn); err == nil {
			return vm, asked, nil
		}
		turn = false
		subnet := x.record.Provider.Subnet
		if subnet == "" || !errors.Is(err, provider.ErrSubnetFull) {
			return vm, asked, err // without capacity in the zone, other subnets of the pool don't help
		}
		l.subnets.Refuse(subnet, err, time.Now())
		if x.repeated {
			return provider.VM{}, asked, fmt.Errorf("subnet %s: %w", subnet, err)
		}
		next, err := l.subnets.Place(ctx, x.group)
		if err != nil {
			return provider.VM{}, asked, err
		}
		if err := l.assign(ctx, x, next, x.record.Provider.CreateAttempt+1); err != nil {
			return provider.VM{}, asked, err
		}
	}
	return provider.VM{}, asked, fmt.Errorf("subnet pool %s: %w", x.group.SubnetPool, provider.ErrSubnetFull)
}

// createThere creates the VM in the subnet of the record. If the provider says that the attempt
// is spent, it retries once with the next attempt.
func (l *launcher) createThere(
	ctx context.Context, x *launch, spec provider.Spec, turn bool,
) (vm provider.VM, asked time.Time, err error) {
	for last := false; ; last, turn = true, false {
		at := x.record.Provider
		spec.Subnet, spec.Attempt = at.Subnet, at.CreateAttempt
		vm, asked, err = l.cloud.Create(ctx, spec, turn)
		switch {
		case err == nil:
			l.subnets.Accept(at.Subnet)
			vm.Subnet = cmp.Or(vm.Subnet, at.Subnet)
			return vm, asked, nil
		case last || !errors.Is(err, provider.ErrSpent):
			return vm, asked, err
		}
		if e := l.assign(ctx, x, at.Subnet, at.CreateAttempt+1); e != nil {
			return vm, asked, e
		}
		x.repeated = false // earlier creates left no VM
	}
}

// createCalled reports whether the create of a record may have been called already.
func createCalled(r fleet.Instance) bool { return r.Provider.Subnet != "" || attempted(r) }

// attempted is createCalled for groups without subnets. CreateAttemptedAt is written before the
// provider is called.
func attempted(r fleet.Instance) bool { return r.Provider.CreateAttemptedAt != nil }

// assign writes the subnet and the attempt of a create into the record before the call.
func (l *launcher) assign(ctx context.Context, x *launch, subnet string, attempt int) error {
	at := time.Now().UTC()
	return l.locate(ctx, x, fleet.ProviderRef{Subnet: subnet, CreateAttemptedAt: &at, CreateAttempt: attempt})
}

// unassign clears the subnet and the time of a create in the record, after the first create of
// an attempt was definitely refused.
func (l *launcher) unassign(ctx context.Context, x *launch) error {
	return l.locate(ctx, x, fleet.ProviderRef{CreateAttempt: x.record.Provider.CreateAttempt + 1})
}

// locate writes the subnet, time and attempt of a create into the record. It is a no-op if
// they are the same.
func (l *launcher) locate(ctx context.Context, x *launch, at fleet.ProviderRef) error {
	change := func(i *fleet.Instance) { relocate(&i.Provider, at) }
	if now := x.record.Provider; now.Subnet == at.Subnet && now.CreateAttempt == at.CreateAttempt &&
		(now.CreateAttemptedAt == nil) == (at.CreateAttemptedAt == nil) {
		return nil
	}
	if err := l.rewrite(ctx, x, change); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&x.record)
	return nil
}

func relocate(r *fleet.ProviderRef, at fleet.ProviderRef) {
	r.Subnet, r.CreateAttemptedAt, r.CreateAttempt = at.Subnet, at.CreateAttemptedAt, at.CreateAttempt
}

// confirmRecord writes the state in memory into the record of a repeated create, if the outcome
// of an earlier write is unknown: the record may be a tombstone or name another subnet.
func (l *launcher) confirmRecord(ctx context.Context, x *launch) error {
	if !l.observed.Get(x.record.ID).RecordDoubtful {
		return nil
	}
	return l.rewrite(ctx, x, func(i *fleet.Instance) {
		relocate(&i.Provider, x.record.Provider)
	})
}

// rewrite changes the record of a create in progress.
func (l *launcher) rewrite(ctx context.Context, x *launch, change func(*fleet.Instance)) error {
	r, err := l.records.update(ctx, x.record.ID, func(i *fleet.Instance) error {
		if i.Phase != fleet.Pending || i.Provider.ID != "" {
			return errMovedOn
		}
		change(i)
		return nil
	})
	if err == nil && r.ID == "" {
		err = errMovedOn
	}
	l.observed.DoubtRecord(x.record.ID, err != nil)
	if err != nil {
		return problems.Because(problems.ReasonStorage, fmt.Errorf("write the subnet of instance %s: %w", x.record.ID, err))
	}
	return nil
}
