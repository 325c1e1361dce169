package reconcile

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// recalls is how many records are read at a time for VMs that seem to have none.
const recalls = 16

// recall reads by its key the record of each VM of ours that memory has none of: a listing
// of the store may have lacked it. That is done once for each VM, and again before one is
// deleted. What it finds is decided about as any other.
func (s *sweeper) recall(ctx context.Context, vms []provider.VM) error {
	unknown := s.unknown(vms)
	found := make([]bool, len(unknown))
	reads, within := errgroup.WithContext(ctx)
	reads.SetLimit(recalls)
	for n, vm := range unknown {
		reads.Go(func() (err error) {
			found[n], err = s.recallOne(within, vm)
			return err
		})
	}
	err := reads.Wait()
	if err == nil {
		s.accounted.Store(true)
	}
	recalled := 0
	for n, vm := range unknown {
		if found[n] {
			recalled++
			s.schedule.mark(groupOfTags(vm))
		} else if err == nil {
			s.orphans.absent[vm.ProviderID] = true
		}
	}
	if recalled > 0 {
		s.log.Warn("records were not listed, and found by the VMs that they stand for", slog.Int("records", recalled))
	}
	return err
}

// unknown returns the VMs of which memory has no record, and of which none was found to
// be absent, and forgets the others of which that was found.
func (s *sweeper) unknown(vms []provider.VM) (unknown []provider.VM) {
	claimed, absent := s.claims().ids, map[string]bool{}
	for _, vm := range vms {
		if _, known := s.cfg.Ledger.Get(vm.ID); known || vm.ID == "" || !vm.State.Exists() || claimed[vm.ID] {
			continue
		}
		if s.orphans.absent[vm.ProviderID] {
			absent[vm.ProviderID] = true
			continue
		}
		unknown = append(unknown, vm)
	}
	s.orphans.absent = absent
	return unknown
}

// recallOne reads the record of one VM, if its tags say where that would be.
func (s *sweeper) recallOne(ctx context.Context, vm provider.VM) (found bool, err error) {
	tenant := groupOfTags(vm).Tenant
	if vm.ID == "" || fleet.CheckName(tenant) != nil {
		return false, nil //nolint:nilerr // no record can be called by such a name
	}
	if found, err = s.cfg.Ledger.Recall(ctx, tenant, vm.ID); err != nil {
		return false, because(ReasonStorage, fmt.Errorf("read the record of the VM %s: %w", vm.ProviderID, err))
	}
	return found, nil
}
