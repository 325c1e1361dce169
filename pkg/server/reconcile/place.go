package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// This file keeps the promise that a create of unknown outcome is repeated in
// the subnet where it was asked for, by whoever leads then: the record says so
// before the provider is asked, and a create moves on to another subnet only
// when it knows that nothing of it can be in the one before.

// settle finds the subnet of a create that was asked for in none yet, and has
// its record, if it is written already, say so.
func (l *launcher) settle(ctx context.Context, x *launch, recorded bool) error {
	if x.record.Provider.Subnet != "" {
		return nil
	}
	subnet, err := l.subnets.place(ctx, x.group)
	if err != nil {
		return createProblem(x, err)
	}
	if recorded {
		return l.assign(ctx, x, subnet, x.record.Provider.CreateAttempt)
	}
	l.mu.Lock() // passes read it meanwhile
	defer l.mu.Unlock()
	x.record.Provider.Subnet = subnet
	return nil
}

// createProblem is a failed create as a problem.
func createProblem(x *launch, err error) error {
	reason := ReasonProvider
	known := (*reasoned)(nil)
	switch {
	case errors.As(err, &known):
		reason = known.reason
	case errors.Is(err, provider.ErrSubnetFull):
		reason = ReasonSubnetFull
	case errors.Is(err, provider.ErrQuota):
		reason = ReasonQuota
	}
	return because(reason, fmt.Errorf("create instance %s: %w", x.record.ID, err))
}

// ask is create, and remembers when it was called, unless it was certainly refused.
func (l *launcher) ask(ctx context.Context, x *launch, spec provider.Spec) (vm provider.VM, asked time.Time, err error) {
	vm, asked, err = l.create(ctx, x, spec)
	if !provider.Definite(err) {
		l.observed.with(x.record.ID, func(b *observation) { b.askedAt = asked })
	}
	return vm, asked, err
}

// create asks for the VM in the subnet that the record names, and when that is
// full in the next that has room for it, unless it was asked for before: then
// it may be there. An attempt that certainly made nothing is followed by the next.
func (l *launcher) create(ctx context.Context, x *launch, spec provider.Spec) (vm provider.VM, asked time.Time, err error) {
	turn := true // it had one to begin
	for range max(1, len(x.group.Subnets)) {
		if vm, asked, err = l.createThere(ctx, x, spec, turn); err == nil {
			return vm, asked, nil
		}
		turn = false
		subnet := x.record.Provider.Subnet
		if subnet == "" || !errors.Is(err, provider.ErrSubnetFull) {
			return vm, asked, err // where the zone has nothing left, the pool's other subnets have no more
		}
		l.subnets.refuse(subnet, err, time.Now())
		if x.repeated {
			return provider.VM{}, asked, fmt.Errorf("subnet %s: %w", subnet, err)
		}
		next, err := l.subnets.place(ctx, x.group)
		if err != nil {
			return provider.VM{}, asked, err
		}
		if err := l.assign(ctx, x, next, x.record.Provider.CreateAttempt+1); err != nil {
			return provider.VM{}, asked, err
		}
	}
	return provider.VM{}, asked, fmt.Errorf("subnet pool %s: %w", x.group.SubnetPool, provider.ErrSubnetFull)
}

// createThere asks for the VM in the subnet that the record names: once, or a second time
// with the next attempt when the provider says that the present one is spent.
func (l *launcher) createThere(
	ctx context.Context, x *launch, spec provider.Spec, turn bool,
) (vm provider.VM, asked time.Time, err error) {
	for last := false; ; last, turn = true, false {
		at := x.record.Provider
		spec.Subnet, spec.Attempt = at.Subnet, at.CreateAttempt
		vm, asked, err = l.cloud.create(ctx, spec, turn)
		switch {
		case err == nil:
			l.subnets.accept(at.Subnet)
			vm.Subnet = cmp.Or(vm.Subnet, at.Subnet)
			return vm, asked, nil
		case last || !errors.Is(err, provider.ErrSpent):
			return vm, asked, err
		}
		if e := l.assign(ctx, x, at.Subnet, at.CreateAttempt+1); e != nil {
			return vm, asked, e
		}
		x.repeated = false // whatever was asked for before, nothing is there
	}
}

// askedFor reports whether a record's create may have been called already.
func askedFor(r fleet.Instance) bool { return r.Provider.Subnet != "" || attempted(r) }

// attempted tells so where there are no subnets. It is written before the provider
// is asked.
func attempted(r fleet.Instance) bool { return r.Provider.CreateAttemptedAt != nil }

// assign writes into a record where its VM is asked for, and with which attempt,
// before it is.
func (l *launcher) assign(ctx context.Context, x *launch, subnet string, attempt int) error {
	at := time.Now().UTC()
	return l.locate(ctx, x, fleet.ProviderRef{Subnet: subnet, CreateAttemptedAt: &at, CreateAttempt: attempt})
}

// unassign writes into a record that its VM is asked for nowhere, after the first create of
// an attempt was certainly refused.
func (l *launcher) unassign(ctx context.Context, x *launch) error {
	return l.locate(ctx, x, fleet.ProviderRef{CreateAttempt: x.record.Provider.CreateAttempt + 1})
}

// locate writes into a record where its VM is asked for, since when, and with which attempt.
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

// confirmRecord makes sure that the record of a create that is repeated says
// what is in memory, if a write of it had an unknown outcome: it may be a
// tombstone by now, or name another subnet.
func (l *launcher) confirmRecord(ctx context.Context, x *launch) error {
	if !l.observed.get(x.record.ID).recordDoubtful {
		return nil
	}
	return l.rewrite(ctx, x, func(i *fleet.Instance) {
		relocate(&i.Provider, x.record.Provider)
	})
}

// rewrite changes the record of a create under way.
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
	l.observed.with(x.record.ID, func(b *observation) { b.recordDoubtful = err != nil })
	if err != nil {
		return because(ReasonStorage, fmt.Errorf("write the subnet of instance %s: %w", x.record.ID, err))
	}
	return nil
}
