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

// writeBack writes into records what the provider shows of their VMs. Safe for concurrent use.
type writeBack struct {
	// certified returns those of a VM's addresses that the instance's certificates may
	// contain; nil: records keep their addresses.
	certified func(id fleet.InstanceID, shown []netip.Addr) []netip.Addr
	observed  *observe.State
	records   *records
	steps     *steps
	reports   *reporter
}

// adopt starts to write the VM of an instance that registered before the create's answer was
// recorded. Each sweep retries, and reports failures.
func (w *writeBack) adopt(ctx context.Context, r fleet.Instance, vm provider.VM, now time.Time) {
	w.steps.work(ctx, r.GroupKey(), r.ID, now, func() error {
		w.reports.fail(ctx, w.records.adopt(ctx, r.ID, vm), r.GroupKey(), r.ID)
		return nil
	})
}

// readdress starts to write the addresses of those of the given records that need it. A record is
// not changed if the instance has not registered, or the provider shows no addresses of its VM.
func (w *writeBack) readdress(ctx context.Context, records ...fleet.Instance) {
	for _, r := range records {
		if r.RegisteredAt == nil || r.Phase.Ending() || w.certified == nil {
			continue
		}
		shown := w.observed.Get(r.ID).Addresses
		if len(shown) == 0 || sameAddresses(r.IPs, w.certified(r.ID, shown)) {
			continue
		}
		w.steps.work(ctx, r.GroupKey(), r.ID, time.Now(), func() error {
			return w.records.readdress(ctx, r.ID, func() []netip.Addr { return w.certified(r.ID, w.observed.Get(r.ID).Addresses) })
		})
	}
}

// readdress writes an instance's addresses. Those that stay keep their order: the first one is
// in certificates.
func (r *records) readdress(ctx context.Context, id fleet.InstanceID, now func() []netip.Addr) error {
	_, err := r.update(ctx, id, func(i *fleet.Instance) error {
		addresses := now()
		if i.RegisteredAt == nil || i.Phase.Ending() || sameAddresses(i.IPs, addresses) {
			return errMovedOn
		}
		i.IPs = fleet.Addresses(i.IPs, addresses)
		return nil
	})
	if err != nil {
		return fmt.Errorf("record the addresses of instance %s: %w", id, err)
	}
	return nil
}

func sameAddresses(recorded []string, now []netip.Addr) bool {
	return len(recorded) == len(now) && !slices.ContainsFunc(now, func(a netip.Addr) bool {
		return !slices.Contains(recorded, a.String())
	})
}
