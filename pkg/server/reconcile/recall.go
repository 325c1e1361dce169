package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/problems"
)

// recalls is the number of concurrent reads of records.
const recalls = 16

// recall reads by key the record of each VM of this shard that has none in memory, since a
// listing of the store may have lacked it. This is done once per VM, and again before it is
// deleted.
func (s *sweeper) recall(ctx context.Context, vms []provider.VM) error {
	unknown := s.unknown(vms)
	found := make([]bool, len(unknown))
	reads, within := errgroup.WithContext(ctx)
	reads.SetLimit(recalls)
	for n, vm := range unknown {
		reads.Go(func() (err error) {
			found[n], err = recallOne(within, s.ledger, vm)
			return err
		})
	}
	err := reads.Wait()
	if err == nil && slices.Contains(found, true) {
		err = reread(ctx, s.ledger, vms)
	}
	if err == nil {
		s.accounted.Store(true)
	}
	recalled := 0
	for n, vm := range unknown {
		if found[n] {
			recalled++
			s.schedule.Mark(census.Group(vm))
		} else if err == nil {
			s.orphans.Absent(vm)
		}
	}
	if recalled > 0 {
		s.log.Warn("records missing from the listing were found by key", slog.Int("records", recalled))
	}
	return err
}

// reread reads by key the records without a live VM: a listing that lacked other records may
// have been stale for these too, and the group would seem to exceed its size.
func reread(ctx context.Context, ledger Ledger, vms []provider.VM) error {
	lives := map[fleet.InstanceID]bool{}
	for _, vm := range vms {
		lives[vm.ID] = lives[vm.ID] || vm.State.Alive()
	}
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(recalls)
	for _, r := range ledger.Instances() {
		if lives[r.ID] || r.Phase == fleet.Deleted {
			continue
		}
		reads.Go(func() error {
			if err := ledger.Reread(ctx, r.Tenant, r.ID); err != nil {
				return problems.Because(problems.ReasonStorage, fmt.Errorf("read the record of instance %s: %w", r.ID, err))
			}
			return nil
		})
	}
	return reads.Wait()
}

// unknown returns the VMs that have no record in memory and whose record was not read by key
// yet.
func (s *sweeper) unknown(vms []provider.VM) (unknown []provider.VM) {
	claimed := s.claims().IDs
	return s.orphans.Unrecorded(vms, func(vm provider.VM) bool {
		_, known := s.ledger.Get(vm.ID)
		return known || vm.ID == "" || !vm.State.Exists() || claimed[vm.ID]
	})
}

// Recall reads by key the record of each VM that has none in memory. If there is any, it also reads those
// without a live VM, which a listing that lacked records may have shown as they were.
func Recall(ctx context.Context, ledger Ledger, vms []provider.VM) error {
	var found atomic.Bool
	reads, within := errgroup.WithContext(ctx)
	reads.SetLimit(recalls)
	for _, vm := range vms {
		if _, known := ledger.Get(vm.ID); known || !vm.State.Exists() {
			continue
		}
		reads.Go(func() error {
			is, err := recallOne(within, ledger, vm)
			if is {
				found.Store(true)
			}
			return err
		})
	}
	if err := reads.Wait(); err != nil || !found.Load() {
		return err
	}
	return reread(ctx, ledger, vms)
}

// recallOne reads the record of one VM by key, if its tags name a valid key.
func recallOne(ctx context.Context, ledger Ledger, vm provider.VM) (found bool, err error) {
	tenant := census.Group(vm).Tenant
	if vm.ID == "" || fleet.CheckName(tenant) != nil {
		return false, nil //nolint:nilerr // no record can have such a key
	}
	if found, err = ledger.Recall(ctx, tenant, vm.ID); err != nil {
		return false, problems.Because(problems.ReasonStorage, fmt.Errorf("read the record of the VM %s: %w", vm.ProviderID, err))
	}
	return found, nil
}
