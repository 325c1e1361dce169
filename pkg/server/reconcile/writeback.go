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
	certified Certified // nil: records keep their host names and addresses
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

// identify starts to write the host name and the addresses of those of the given records that need it.
// A record is not changed if the instance has not registered, or the provider shows no addresses of its VM.
func (w *writeBack) identify(ctx context.Context, records ...fleet.Instance) {
	for _, r := range records {
		if w.certified == nil || w.identified(&r) {
			continue
		}
		w.steps.work(ctx, r.GroupKey(), r.ID, time.Now(), func() error { return w.records.identify(ctx, r.ID, w.identified) })
	}
}

// identified reports whether a record needs no change, and changes it otherwise. Addresses that stay
// keep their order: the first one is in certificates.
func (w *writeBack) identified(i *fleet.Instance) bool {
	vm := w.observed.Get(i.ID)
	if i.RegisteredAt == nil || i.Phase.Ending() || len(vm.Addresses) == 0 {
		return true
	}
	hostname, addresses := w.certified(*i, vm.Names, vm.Addresses)
	if i.Hostname == hostname && sameAddresses(i.IPs, addresses) {
		return true
	}
	i.Hostname, i.IPs = hostname, fleet.Addresses(i.IPs, addresses)
	return false
}

// identify changes an instance's record unless identified reports that it needs no change.
func (r *records) identify(ctx context.Context, id fleet.InstanceID, identified func(*fleet.Instance) bool) error {
	_, err := r.update(ctx, id, func(i *fleet.Instance) error {
		if identified(i) {
			return errMovedOn
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record the host name and the addresses of instance %s: %w", id, err)
	}
	return nil
}

func sameAddresses(recorded []string, now []netip.Addr) bool {
	return len(recorded) == len(now) && !slices.ContainsFunc(now, func(a netip.Addr) bool {
		return !slices.Contains(recorded, a.String())
	})
}
