package providertest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

func testForeignScope(t *testing.T, s *shard) {
	vm := s.create(t)
	other := s.Open(t, provider.Scope{ClusterID: s.scope.ClusterID, Shard: "shard-2"})
	for _, ref := range []provider.Ref{vm.Ref(), {ID: vm.ID}, {ProviderID: vm.ProviderID}} {
		if err := provider.DeleteOne(t.Context(), other, ref); err != nil {
			t.Errorf("delete of another shard's %v: %v", ref, err)
		}
	}
	if got, err := provider.GetOne(t.Context(), s, vm.Ref()); err != nil || got.State != provider.StateRunning {
		t.Errorf("another shard's delete reached the VM: %s, %v", got.State, err)
	}
}

func testDeleteUnknown(t *testing.T, s *shard) {
	bystander := s.create(t)
	for _, ref := range []provider.Ref{{ID: s.newID(t)}, {ProviderID: "no-such-vm"}} {
		if err := provider.DeleteOne(t.Context(), s, ref); err != nil {
			t.Errorf("delete of the unknown %v: %v", ref, err)
		}
	}
	s.await(t, s, bystander.Ref(), provider.StateRunning)
}

func testDeleteTwice(t *testing.T, s *shard) {
	vm := s.create(t)
	for i := range 3 {
		if err := provider.DeleteOne(t.Context(), s, vm.Ref()); err != nil {
			t.Fatalf("delete %d: %v", i+1, err)
		}
	}
	s.await(t, s, vm.Ref(), provider.StateDeleted)
	if err := provider.DeleteOne(t.Context(), s, vm.Ref()); err != nil {
		t.Errorf("delete of what is gone: %v", err)
	}
	if err := provider.DeleteOne(t.Context(), s, provider.Ref{ID: vm.ID}); err != nil {
		t.Errorf("delete of what is gone, by instance id: %v", err)
	}
}

func testDeleteRace(t *testing.T, s *shard) {
	vm := s.create(t)
	other := s.Open(t, s.scope)
	var wg sync.WaitGroup
	for _, p := range []provider.Provider{s, other, s, other} {
		wg.Go(func() {
			if err := provider.DeleteOne(t.Context(), p, vm.Ref()); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
	}
	wg.Wait()
	s.await(t, s, vm.Ref(), provider.StateDeleted)
	s.await(t, other, vm.Ref(), provider.StateDeleted)
}

func testCancelled(t *testing.T, s *shard) {
	vm := s.create(t)
	spec := s.spec(t, s.scope)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, createErr := s.Create(ctx, spec)
	_, getErr := provider.GetOne(ctx, s, vm.Ref())
	_, listErr := s.List(ctx)
	deleteErr := provider.DeleteOne(ctx, s, vm.Ref())
	for name, err := range map[string]error{"create": createErr, "get": getErr, "list": listErr, "delete": deleteErr} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that has ended: %v, want context.Canceled", name, err)
		}
	}
	if vms := s.list(t, s); len(vms) != 1 || vms[0].State != provider.StateRunning {
		t.Errorf("calls with a context that has ended had an effect: %+v", vms)
	}
}

// testGuard has a guard refuse: nothing may happen, and the refusal is the
// answer. A guard that permits is asked at least once.
func testGuard(t *testing.T, s *shard) {
	vm := s.create(t)
	refusal := errors.New("not the leader")
	refused := provider.WithGuard(t.Context(), func(context.Context) error { return refusal })
	spec := s.spec(t, s.scope)
	if _, err := s.Create(refused, spec); err != refusal { //nolint:errorlint // as it is, not wrapped
		t.Errorf("create against the guard: %v, want the guard's own error", err)
	}
	if err := provider.DeleteOne(refused, s, vm.Ref()); err != refusal { //nolint:errorlint // as it is, not wrapped
		t.Errorf("delete against the guard: %v, want the guard's own error", err)
	}
	if _, err := provider.GetOne(refused, s, vm.Ref()); err != nil {
		t.Errorf("get asks the guard: %v", err)
	}
	if _, err := s.List(refused); err != nil {
		t.Errorf("list asks the guard: %v", err)
	}
	if vms := s.list(t, s); len(vms) != 1 || vms[0].State != provider.StateRunning {
		t.Fatalf("what the guard forbade had an effect: %+v", vms)
	}
	var asked int
	permitted := provider.WithGuard(t.Context(), func(context.Context) error { asked++; return nil })
	if _, err := s.Create(permitted, spec); err != nil || asked == 0 {
		t.Errorf("create: %v, after asking the guard %d times", err, asked)
	}
	asked = 0
	if err := provider.DeleteOne(permitted, s, vm.Ref()); err != nil || asked == 0 {
		t.Errorf("delete: %v, after asking the guard %d times", err, asked)
	}
}
