package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/census"
	"github.com/nstance/nstance/pkg/server/problems"
)

// atSize reports whether a group has as many running instances as its size, so that a VM
// without a record is not needed.
func (s *sweeper) atSize(key fleet.GroupKey) bool {
	g, defined := s.groups.Group(key)
	switch {
	case !defined || g.Removed:
		return true
	case g.RecordMissing != "": // its size is not known
		return false
	}
	running, recorded := 0, map[fleet.InstanceID]bool{}
	for _, r := range s.ledger.Members(key, nil) {
		recorded[r.ID] = true
		if r.Phase == fleet.Running && !r.OnDemand && !s.observed.Get(r.ID).VM.Dead() {
			running++
		}
	}
	return running >= g.Size-s.filled(key, func(id fleet.InstanceID) bool { return recorded[id] })
}

// removeOrphans starts workers that delete the VMs, except those still being deleted since an
// earlier sweep.
func (s *sweeper) removeOrphans(ctx context.Context, doomed []provider.VM) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, vm := range doomed {
		if s.removing[vm.ProviderID] {
			continue
		}
		s.removing[vm.ProviderID] = true
		s.workers.Go(func() {
			err := s.removeOrphan(ctx, vm)
			s.mu.Lock()
			delete(s.removing, vm.ProviderID)
			s.mu.Unlock()
			s.reports.fail(ctx, err, census.Group(vm), vm.ID)
		})
	}
}

// removeOrphan deletes a VM without a record, if it still exists and still has none.
func (s *sweeper) removeOrphan(ctx context.Context, vm provider.VM) error {
	free, err := s.deletes.acquire(ctx)
	if err != nil {
		return err
	}
	defer free()
	got := s.cloud.Get(ctx, vm.Ref())[0]
	if got.Err != nil {
		return problems.Because(problems.ReasonProvider, fmt.Errorf("describe the stray VM %s: %w", vm.ProviderID, got.Err))
	}
	if _, err := recallOne(ctx, s.ledger, vm); err != nil {
		return err
	}
	if !s.orphans.Quiet(vm, time.Now().Add(-s.tuning.Load().Quiet)) {
		return nil
	}
	if !got.Found || got.VM.State == provider.StateDeleting || !got.VM.State.Exists() || s.meant(vm) {
		return nil
	}
	if err := s.cloud.DeleteAlone(ctx, vm.Ref()); err != nil {
		return problems.Because(problems.ReasonProvider, fmt.Errorf("delete the stray VM %s: %w", vm.ProviderID, err))
	}
	s.reports.tellOrphan(vm)
	s.log.Warn("stray VM deleted", slog.String("provider_id", vm.ProviderID),
		slog.String("instance", string(vm.ID)), slog.String("group", census.Group(vm).String()))
	return nil
}

// meant reports whether a record belongs, or may belong, to exactly this VM. The creates in
// progress are read first, because each is in the ledger before it ends.
func (s *sweeper) meant(vm provider.VM) bool {
	if vm.ID == "" {
		return false
	}
	if s.claims().IDs[vm.ID] || s.creates.underWay()[vm.ID] {
		return true
	}
	r, ok := s.ledger.Get(vm.ID)
	return ok && r.Phase != fleet.Deleted && (r.Provider.ID == "" || r.Provider.ID == vm.ProviderID)
}
