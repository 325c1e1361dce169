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
		return l.assign(ctx, x, subnet)
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
func (l *launcher) ask(ctx context.Context, x *launch, spec provider.Spec, repeated bool) (vm provider.VM, asked time.Time, err error) {
	vm, asked, err = l.create(ctx, x, spec, repeated)
	if !provider.Definite(err) {
		l.observed.with(x.record.ID, func(b *observation) { b.askedAt = asked })
	}
	return vm, asked, err
}

// create asks for the VM in the subnet that the record names, and when that is
// full in the next that has room for it, unless it was asked for before: then
// it may be there.
func (l *launcher) create(
	ctx context.Context, x *launch, spec provider.Spec, repeated bool,
) (vm provider.VM, asked time.Time, err error) {
	turn := true // it had one to begin
	for range max(1, len(x.group.Subnets)) {
		subnet := x.record.Provider.Subnet
		spec.Subnet = subnet
		vm, asked, err = l.cloud.create(ctx, spec, turn)
		turn = false
		if err == nil {
			l.subnets.accept(subnet)
			vm.Subnet = cmp.Or(vm.Subnet, subnet)
		}
		if subnet == "" || !errors.Is(err, provider.ErrSubnetFull) {
			return vm, asked, err // where the zone has nothing left, the pool's other subnets have no more
		}
		l.subnets.refuse(subnet, err, time.Now())
		if repeated {
			return provider.VM{}, asked, fmt.Errorf("subnet %s: %w", subnet, err)
		}
		next, err := l.subnets.place(ctx, x.group)
		if err != nil {
			return provider.VM{}, asked, err
		}
		if err := l.assign(ctx, x, next); err != nil {
			return provider.VM{}, asked, err
		}
	}
	return provider.VM{}, asked, fmt.Errorf("subnet pool %s: %w", x.group.SubnetPool, provider.ErrSubnetFull)
}

// askedFor reports whether a record's create may have been called already.
func askedFor(r fleet.Instance) bool { return r.Provider.Subnet != "" || attempted(r) }

// attempted tells so where there are no subnets. It is written before the provider
// is asked.
func attempted(r fleet.Instance) bool { return r.Provider.CreateAttemptedAt != nil }

// assign writes into a record where its VM is asked for, before it is.
func (l *launcher) assign(ctx context.Context, x *launch, subnet string) error {
	at := time.Now().UTC()
	return l.locate(ctx, x, subnet, &at)
}

// locate writes into a record where its VM is asked for, and since when; nil: it
// is not.
func (l *launcher) locate(ctx context.Context, x *launch, subnet string, at *time.Time) error {
	change := func(i *fleet.Instance) { i.Provider.Subnet, i.Provider.CreateAttemptedAt = subnet, at }
	next := x.record
	if change(&next); next.Provider.Subnet == x.record.Provider.Subnet && attempted(next) == attempted(x.record) {
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

// confirmRecord makes sure that the record of a create that is repeated says
// what is in memory, if a write of it had an unknown outcome: it may be a
// tombstone by now, or name another subnet.
func (l *launcher) confirmRecord(ctx context.Context, x *launch) error {
	if !l.observed.get(x.record.ID).recordDoubtful {
		return nil
	}
	return l.rewrite(ctx, x, func(i *fleet.Instance) {
		i.Provider.Subnet, i.Provider.CreateAttemptedAt = x.record.Provider.Subnet, x.record.Provider.CreateAttemptedAt
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
