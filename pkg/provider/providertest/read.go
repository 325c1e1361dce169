package providertest

import (
	"errors"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

func testReferences(t *testing.T, s *shard) {
	a, b := s.create(t), s.create(t)
	for name, ref := range map[string]provider.Ref{
		"both":             a.Ref(),
		"instance id only": {ID: a.ID},
		"provider id only": {ProviderID: a.ProviderID},
	} {
		if vm, err := provider.GetOne(t.Context(), s, ref); err != nil || vm.Ref() != a.Ref() {
			t.Errorf("get by %s: %v, %v; want %v", name, vm.Ref(), err, a.Ref())
		}
	}
	for name, ref := range map[string]provider.Ref{
		"an unknown id":           {ID: s.newID(t)},
		"an unknown provider id":  {ProviderID: "no-such-vm"},
		"a provider id that lies": {ProviderID: "../" + a.ProviderID},
		"halves of different VMs": {ID: a.ID, ProviderID: b.ProviderID},
		"an id, and unknown half": {ID: a.ID, ProviderID: "no-such-vm"},
	} {
		if vm, err := provider.GetOne(t.Context(), s, ref); !errors.Is(err, provider.ErrNotFound) {
			t.Errorf("get by %s: %v, %v; want ErrNotFound", name, vm.Ref(), err)
		}
		if err := provider.DeleteOne(t.Context(), s, ref); err != nil {
			t.Errorf("delete of %s: %v", name, err)
		}
	}
	if _, err := provider.GetOne(t.Context(), s, provider.Ref{}); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("get by nothing: %v, want ErrInvalid", err)
	}
	if err := provider.DeleteOne(t.Context(), s, provider.Ref{}); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("delete of nothing: %v, want ErrInvalid", err)
	}
	for _, vm := range []provider.VM{a, b} {
		s.await(t, s, vm.Ref(), provider.StateRunning)
	}
}

// testConsistentReads holds a provider to its word on its reads: they are what the
// world says, and if that is consistent, a VM is shown from the moment its create
// has returned.
func testConsistentReads(t *testing.T, s *shard) {
	if got, want := provider.Consistent(s.Provider), s.Eventual == 0; got != want {
		t.Fatalf("the provider says that its reads are consistent: %v, want %v", got, want)
	}
	if s.Eventual > 0 {
		return
	}
	for n := range 5 {
		vm, err := s.Create(t.Context(), s.spec(t, s.scope))
		if err != nil {
			t.Fatalf("create: %v", err)
		}
		if _, err := provider.GetOne(t.Context(), s.Open(t, s.scope), vm.Ref()); err != nil {
			t.Errorf("get right after its create: %v", err)
		}
		if vms := s.list(t, s); len(vms) != n+1 {
			t.Errorf("%d VMs are listed right after create %d", len(vms), n+1)
		}
	}
}

func testListOrder(t *testing.T, s *shard) {
	specs := make([]provider.Spec, 4)
	for i := range specs {
		specs[i] = s.spec(t, s.scope)
	}
	for _, i := range []int{2, 0, 3, 1} {
		if _, err := s.Create(t.Context(), specs[i]); err != nil {
			t.Fatalf("create: %v", err)
		}
	}
	vms := s.list(t, s)
	if len(vms) != len(specs) || !slices.IsSortedFunc(vms, provider.Compare) {
		t.Errorf("list shows %v", ids(vms))
	}
}

// testListScope has three shards of two clusters in one world, which must not
// see each other.
func testListScope(t *testing.T, s *shard) {
	scopes := []provider.Scope{
		s.scope,
		{ClusterID: s.scope.ClusterID, Shard: "shard-2"},
		{ClusterID: s.scope.ClusterID + "-2", Shard: s.scope.Shard},
	}
	made := make([]provider.VM, len(scopes))
	for i, scope := range scopes {
		vm, err := s.Open(t, scope).Create(t.Context(), s.spec(t, scope))
		if err != nil {
			t.Fatalf("create in %v: %v", scope, err)
		}
		made[i] = vm
	}
	for i, scope := range scopes {
		p := s.Open(t, scope)
		if vms := s.list(t, p); len(vms) != 1 || vms[0].ID != made[i].ID {
			t.Errorf("%v lists %v, want %s", scope, ids(vms), made[i].ID)
		}
		for j, vm := range made {
			_, err := provider.GetOne(t.Context(), p, vm.Ref())
			if i != j && !isNotFound(err) {
				t.Errorf("%v gets the VM of %v: %v", scope, scopes[j], err)
			}
		}
	}
}

// testListStrays plants VMs that were not created here.
func testListStrays(t *testing.T, s *shard) {
	if s.Plant == nil {
		t.Skip("the harness can't plant a VM behind the provider's back")
	}
	stray := s.newID(t)
	tags := func(change func(map[string]string)) map[string]string {
		m := s.scope.Tags(fleet.Instance{ID: stray, Tenant: "default", Group: "web"})
		change(m)
		return m
	}
	s.Plant(t, tags(func(m map[string]string) { m[provider.TagManaged] = "false" }))
	s.Plant(t, tags(func(m map[string]string) { delete(m, provider.TagManaged) }))
	s.Plant(t, tags(func(m map[string]string) { delete(m, provider.TagShard) }))
	s.Plant(t, tags(func(m map[string]string) { m[provider.TagClusterID] = "other" }))
	s.Plant(t, map[string]string{"team": "ops"})
	if vms := s.list(t, s); len(vms) != 0 {
		t.Fatalf("VMs that are not ours are listed: %+v", vms)
	}
	s.Plant(t, tags(func(map[string]string) {}))
	s.Plant(t, tags(func(m map[string]string) { m[provider.TagInstanceID] = "KNC/../" }))
	s.Plant(t, tags(func(m map[string]string) { delete(m, provider.TagInstanceID) }))
	vms := s.list(t, s)
	if got, want := ids(vms), []fleet.InstanceID{"", "", stray}; !slices.Equal(got, want) {
		t.Fatalf("list shows %q, want the strays of this scope: %q", got, want)
	}
	for _, vm := range vms {
		if err := provider.DeleteOne(t.Context(), s, vm.Ref()); err != nil {
			t.Errorf("delete stray %+v: %v", vm, err)
		}
		s.await(t, s, vm.Ref(), provider.StateDeleted)
	}
	if vms := s.list(t, s); len(vms) != 0 {
		t.Errorf("strays outlive their deletion: %+v", vms)
	}
}

func testReopen(t *testing.T, s *shard) {
	vm := s.create(t)
	again := s.Open(t, s.scope)
	got, err := provider.GetOne(t.Context(), again, provider.Ref{ID: vm.ID})
	if err != nil || got.Ref() != vm.Ref() || got.State != provider.StateRunning {
		t.Fatalf("the second handle finds %+v, %v; want %+v", got, err, vm)
	}
	if vms := s.list(t, again); len(vms) != 1 || vms[0].Ref() != vm.Ref() {
		t.Fatalf("the second handle lists %v", ids(vms))
	}
	if err := provider.DeleteOne(t.Context(), again, vm.Ref()); err != nil {
		t.Fatalf("delete through the second handle: %v", err)
	}
	s.await(t, s, vm.Ref(), provider.StateDeleted)
}

func ids(vms []provider.VM) []fleet.InstanceID {
	out := make([]fleet.InstanceID, len(vms))
	for i, vm := range vms {
		out[i] = vm.ID
	}
	return out
}
