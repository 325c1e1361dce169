package reconcile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
)

// This file tells the names and addresses of machines as the provider reports them.

// Machine returns the provider's last answer about an instance's VM, from memory.
func (l *Loop) Machine(id fleet.InstanceID) observe.Machine { return l.observed.Machine(id) }

// Addresses returns the addresses of an instance's VM that the provider last showed; none if
// it has shown none in this term.
func (l *Loop) Addresses(id fleet.InstanceID) []netip.Addr {
	return slices.Clone(l.observed.Get(id).Addresses)
}

// DescribeMachine reads an instance's VM from the provider. If the VM is not found, it returns
// the previous answer with Running unset. While the provider throttles, it waits until ctx
// ends.
func (l *Loop) DescribeMachine(ctx context.Context, r fleet.Instance) (observe.Machine, error) {
	l.observed.Described(r.ID, time.Now())
	got := l.cloud.GetNow(ctx, provider.RefOf(r))
	if got.Err != nil {
		l.observed.Described(r.ID, time.Time{})
		l.poller.pollNow(r) // updates the record later
		return observe.Machine{}, fmt.Errorf("describe the VM of instance %s: %w", r.ID, got.Err)
	}
	if !got.Found {
		l.poller.pollNow(r) // confirms the not-found
		m := l.Machine(r.ID)
		m.Running = false
		return m, nil
	}
	now := time.Now()
	news := l.observed.See(now, answerAbout(r, got))
	mark(l.schedule, now, news...)
	l.reports.tell(news...)
	return l.Machine(r.ID), nil
}

// Named returns the instances whose VM has the given lowercase name in the provider's DNS, as
// last shown for VMs that have not ended. The caller must not modify the result.
func (l *Loop) Named(name string) []fleet.InstanceID { return l.observed.Named(name) }

// NamedBelow returns the instances whose VM has a name one label below a domain.
func (l *Loop) NamedBelow(domain string) []fleet.InstanceID { return l.observed.NamedBelow(domain) }

// Addressed returns the instances whose VM has the given address, as last shown for VMs that
// have not ended. The caller must not modify the result.
func (l *Loop) Addressed(addr netip.Addr) []fleet.InstanceID { return l.observed.Addressed(addr) }
