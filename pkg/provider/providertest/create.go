package providertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

func isNotFound(err error) bool { return errors.Is(err, provider.ErrNotFound) }

func testLifecycle(t *testing.T, s *shard) {
	if vms := s.list(t, s); len(vms) != 0 {
		t.Fatalf("a new world lists %v", vms)
	}
	spec := s.spec(t, s.scope)
	made, err := s.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	if made.ID != spec.ID || made.ProviderID == "" || !made.State.Alive() {
		t.Fatalf("create answers %+v", made)
	}
	vm := s.await(t, s, made.Ref(), provider.StateRunning)
	if vm.ProviderID != made.ProviderID || vm.Hostname != spec.Hostname || vm.CreatedAt.IsZero() || len(vm.Addresses) == 0 {
		t.Errorf("running VM is %+v", vm)
	}
	if vms := s.list(t, s); len(vms) != 1 || vms[0].Ref() != vm.Ref() || vms[0].State != provider.StateRunning {
		t.Errorf("list shows %+v, want the one running VM", vms)
	}
	removal(t, s, vm)
}

// removal takes a running VM to its end.
func removal(t *testing.T, s *shard, vm provider.VM) {
	t.Helper()
	if err := provider.DeleteOne(t.Context(), s, vm.Ref()); err != nil {
		t.Fatalf("delete: %v", err)
	}
	s.catchUp()
	if vm, err := provider.GetOne(t.Context(), s, vm.Ref()); err == nil && vm.State.Alive() {
		t.Errorf("alive (%s) right after an accepted delete", vm.State)
	}
	s.await(t, s, vm.Ref(), provider.StateDeleted)
	if vms := s.list(t, s); len(vms) != 0 {
		t.Errorf("still listed after deletion: %+v", vms)
	}
}

func testCreateTwice(t *testing.T, s *shard) {
	spec := s.spec(t, s.scope)
	var first provider.VM
	for i := range 3 {
		vm, err := s.Create(t.Context(), spec)
		if err != nil {
			t.Fatalf("create %d: %v", i+1, err)
		}
		if i == 0 {
			first = vm
			continue
		}
		if vm.Ref() != first.Ref() {
			t.Fatalf("create %d made %v, the first %v", i+1, vm.Ref(), first.Ref())
		}
		s.await(t, s, vm.Ref(), provider.StateRunning)
	}
	if vms := s.list(t, s); len(vms) != 1 {
		t.Errorf("three creates of one id left %d VMs", len(vms))
	}
}

// testCreateRace has both servers of a shard ask for the same VM, each several
// times at once.
func testCreateRace(t *testing.T, s *shard) {
	spec := s.spec(t, s.scope)
	other := s.Open(t, s.scope)
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := map[string]int{}
	for i := range 8 {
		p := s.Provider
		if i%2 == 1 {
			p = other
		}
		wg.Go(func() {
			vm, err := p.Create(t.Context(), spec)
			if err != nil {
				t.Errorf("create: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			made[vm.ProviderID]++
		})
	}
	wg.Wait()
	if len(made) != 1 {
		t.Fatalf("one id became %v", made)
	}
	s.await(t, s, provider.Ref{ID: spec.ID}, provider.StateRunning)
	if vms := s.list(t, s); len(vms) != 1 {
		t.Errorf("the race left %d VMs", len(vms))
	}
}

func testCreateInvalid(t *testing.T, s *shard) {
	change := map[string]func(*provider.Spec){
		"malformed id":     func(spec *provider.Spec) { spec.ID = "../../etc" },
		"empty id":         func(spec *provider.Spec) { spec.ID = "" },
		"not managed":      func(spec *provider.Spec) { delete(spec.Tags, provider.TagManaged) },
		"another cluster":  func(spec *provider.Spec) { spec.Tags[provider.TagClusterID] = "other" },
		"another shard":    func(spec *provider.Spec) { spec.Tags[provider.TagShard] = "other" },
		"another instance": func(spec *provider.Spec) { spec.Tags[provider.TagInstanceID] = string(s.newID(t)) },
	}
	for n, args := range s.BadArgs {
		change[fmt.Sprintf("bad args %d", n)] = func(spec *provider.Spec) { spec.Args = args }
	}
	for _, name := range slices.Sorted(maps.Keys(change)) {
		spec := s.spec(t, s.scope)
		change[name](&spec)
		if _, err := s.Create(t.Context(), spec); !errors.Is(err, provider.ErrInvalid) {
			t.Errorf("%s: create answers %v, want ErrInvalid", name, err)
		}
	}
	if vms := s.list(t, s); len(vms) != 0 {
		t.Errorf("refused creates made %+v", vms)
	}
}

func testTags(t *testing.T, s *shard) {
	spec := s.spec(t, s.scope)
	spec.Tags["example.com/team"] = `ops "north" = 1`
	vm, err := s.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	vms := s.list(t, s)
	got, err := provider.GetOne(t.Context(), s, vm.Ref())
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if len(vms) != 1 {
		t.Fatalf("list shows %d VMs, want 1", len(vms))
	}
	for where, tags := range map[string]map[string]string{"create": vm.Tags, "get": got.Tags, "list": vms[0].Tags} {
		for key, want := range spec.Tags {
			if tags[key] != want {
				t.Errorf("%s: tag %s is %q, want %q", where, key, tags[key], want)
			}
		}
	}
	got.Tags[provider.TagShard] = "scribbled"
	if again, err := provider.GetOne(t.Context(), s, vm.Ref()); err != nil || again.Tags[provider.TagShard] != s.scope.Shard {
		t.Errorf("a caller's change to its copy of the tags reached the provider: %+v, %v", again.Tags, err)
	}
}
