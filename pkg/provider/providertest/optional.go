package providertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

// ImageCase is a question to a provider.ImageResolver and its answer.
type ImageCase struct {
	Query provider.ImageQuery
	Want  string // empty: there is no such image
}

// offered returns the part of the provider that is tested, and skips the test of
// a provider that has none. One that has it needs a world that can test it.
func offered[T any](t *testing.T, s *shard, of func(provider.Provider) (T, bool), testable bool, field string) T {
	t.Helper()
	part, ok := of(s.Provider)
	if !ok {
		t.Skip("the provider does not offer it")
	}
	if !testable {
		t.Fatalf("the provider offers it, and the world has no %s to test it by", field)
	}
	return part
}

// testArgs: what the check refuses Create refuses too, which testCreateInvalid sees
// to, and what Create takes the check has nothing against.
func testArgs(t *testing.T, s *shard) {
	p := offered(t, s, provider.ArgsCheckerOf, len(s.BadArgs) > 0, "BadArgs")
	spec := s.spec(t, s.scope)
	if err := p.CheckArgs(spec); err != nil {
		t.Errorf("check of what Create is to take: %v", err)
	}
	if _, err := s.Create(t.Context(), spec); err != nil {
		t.Errorf("create: %v", err)
	}
	for _, args := range s.BadArgs {
		spec.Args = args
		err := p.CheckArgs(spec)
		var fields provider.FieldErrors
		if !errors.Is(err, provider.ErrInvalid) || !errors.As(err, &fields) || len(fields) == 0 {
			t.Errorf("%v: check answers %v, want FieldErrors", args, err)
		}
		for _, f := range fields {
			if !strings.HasPrefix(f.Path, "args") || f.Message == "" {
				t.Errorf("%v: the check names %q, want a path below args and what is wrong with it", args, f)
			}
		}
		draft := provider.Spec{Args: args, Arch: spec.Arch, InstanceType: spec.InstanceType, Subnet: spec.Subnet}
		if again := p.CheckArgs(draft); again == nil || again.Error() != err.Error() {
			t.Errorf("%v: without an instance the check answers %v, with one %v", args, again, err)
		}
	}
}

func testSubnetCapacity(t *testing.T, s *shard) {
	p := offered(t, s, provider.SubnetCapacityOf, s.Subnet != "", "Subnet")
	free := func() int {
		t.Helper()
		got, err := p.FreeAddresses(t.Context(), []string{s.Subnet, "no-such-subnet"})
		if err != nil {
			t.Fatalf("free addresses: %v", err)
		}
		if _, ok := got["no-such-subnet"]; ok || len(got) != 1 {
			t.Fatalf("free addresses of a subnet, and of one that does not exist: %v", got)
		}
		return got[s.Subnet]
	}
	before := free()
	if before < 1 {
		t.Fatalf("%d free addresses in an empty subnet", before)
	}
	spec := s.spec(t, s.scope)
	spec.Subnet = s.Subnet
	vm, err := s.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	if after := free(); after >= before {
		t.Errorf("%d addresses free before a VM was made, %d after", before, after)
	}
	if got, err := p.FreeAddresses(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("free addresses of no subnet: %v, %v", got, err)
	}
	removal(t, s, s.await(t, s, vm.Ref(), provider.StateRunning))
	if again := free(); again != before {
		t.Errorf("%d addresses free before a VM came and went, %d after", before, again)
	}
}

// testSubnetFull fills a subnet: it says so itself, and the create that finds it
// full says that the subnet is, rather than that there is nothing left anywhere.
func testSubnetFull(t *testing.T, s *shard) {
	p := offered(t, s, provider.SubnetCapacityOf, s.Subnet != "", "Subnet")
	free := func() int {
		t.Helper()
		got, err := p.FreeAddresses(t.Context(), []string{s.Subnet})
		if err != nil {
			t.Fatalf("free addresses: %v", err)
		}
		return got[s.Subnet]
	}
	create := func() error {
		spec := s.spec(t, s.scope)
		spec.Subnet = s.Subnet
		_, err := s.Create(t.Context(), spec)
		return err
	}
	for n := free(); n > 0; n-- {
		if err := create(); err != nil {
			t.Fatalf("create with %d addresses free: %v", n, err)
		}
	}
	if n := free(); n != 0 {
		t.Errorf("%d addresses free in a full subnet", n)
	}
	// A provider may call one full that has some left, for others.
	var err error
	for range 32 {
		if err = create(); err != nil {
			break
		}
	}
	if !errors.Is(err, provider.ErrSubnetFull) || errors.Is(err, provider.ErrQuota) {
		t.Errorf("create in a full subnet: %v, want ErrSubnetFull", err)
	}
}

func testImages(t *testing.T, s *shard) {
	p := offered(t, s, provider.ImageResolverOf, len(s.Images) > 0, "Images")
	for _, c := range s.Images {
		got, err := p.ResolveImage(t.Context(), c.Query)
		if c.Want == "" {
			if !isNotFound(err) {
				t.Errorf("%+v: %q, %v; want ErrNotFound", c.Query, got, err)
			}
			continue
		}
		if err != nil || got != c.Want {
			t.Errorf("%+v: %q, %v; want %q", c.Query, got, err, c.Want)
		}
	}
	unknown := provider.ImageQuery{Filters: []provider.ImageFilter{{Name: "no-such-property", Values: []string{"*"}}}}
	if got, err := p.ResolveImage(t.Context(), unknown); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("a filter by a property that images don't have: %q, %v; want ErrInvalid", got, err)
	}
}

func testInstanceTypes(t *testing.T, s *shard) {
	p := offered(t, s, provider.InstanceTypesOf, len(s.InstanceTypes) > 0, "InstanceTypes")
	names := slices.Sorted(maps.Keys(s.InstanceTypes))
	got, err := p.InstanceTypes(t.Context(), append([]string{"no-such-type"}, names...))
	if err != nil || !maps.Equal(got, s.InstanceTypes) {
		t.Errorf("%v, and one that does not exist: %v, %v; want %v", names, got, err, s.InstanceTypes)
	}
	if got, err := p.InstanceTypes(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("of no instance type: %v, %v", got, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if got, err := p.InstanceTypes(ended, names); err == nil {
		t.Errorf("asked by a caller that is gone: %v, want an error", got)
	}
}

func testLoadBalancer(t *testing.T, s *shard) {
	p := offered(t, s, provider.LoadBalancerOf, s.Target != nil, "Target")
	target := s.Target(t)
	registered := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		s.catchUp()
		if got, err := p.Targets(t.Context(), target); err != nil || !slices.Equal(got, want) {
			t.Errorf("registered: %v, %v; want %v", got, err, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	registered()
	a, b := s.create(t), s.create(t)
	for range 2 { // each is idempotent
		must(p.Register(t.Context(), target, a.Ref()))
		registered(a.ProviderID)
	}
	must(p.Register(t.Context(), target, b.Ref()))
	registered(a.ProviderID, b.ProviderID)
	for range 2 {
		must(p.Deregister(t.Context(), target, a.Ref()))
		registered(b.ProviderID)
	}
	must(provider.DeleteOne(t.Context(), s, b.Ref()))
	s.await(t, s, b.Ref(), provider.StateDeleted)
	must(p.Deregister(t.Context(), target, b.Ref()))
	registered()
	must(p.Deregister(t.Context(), target, provider.Ref{ID: s.newID(t), ProviderID: "no-such-vm"}))
}

func testLoadBalancerRefusals(t *testing.T, s *shard) {
	p := offered(t, s, provider.LoadBalancerOf, s.Target != nil, "Target")
	target, vm := s.Target(t), s.create(t)
	foreign, _ := provider.LoadBalancerOf(s.Open(t, provider.Scope{ClusterID: s.scope.ClusterID, Shard: "shard-2"}))
	if err := foreign.Register(t.Context(), target, vm.Ref()); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("register another shard's VM: %v, want ErrInvalid", err)
	}
	gone := s.create(t)
	if err := provider.DeleteOne(t.Context(), s, gone.Ref()); err != nil {
		t.Fatal(err)
	}
	s.await(t, s, gone.Ref(), provider.StateDeleted)
	if err := p.Register(t.Context(), target, gone.Ref()); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("register a VM that is gone: %v, want ErrInvalid", err)
	}
	missing := s.MissingTarget
	_, listErr := p.Targets(t.Context(), missing)
	for name, err := range map[string]error{
		"register": p.Register(t.Context(), missing, vm.Ref()), "deregister": p.Deregister(t.Context(), missing, vm.Ref()), "targets": listErr,
	} {
		if !isNotFound(err) {
			t.Errorf("%s with a target that does not exist: %v, want ErrNotFound", name, err)
		}
	}
	s.catchUp()
	if ids, err := p.Targets(t.Context(), target); err != nil || len(ids) != 0 {
		t.Errorf("refused registrations left %v, %v", ids, err)
	}
}

// testLoadBalancerGuard has a guard refuse: nothing may change, and the refusal
// is the answer.
func testLoadBalancerGuard(t *testing.T, s *shard) {
	p := offered(t, s, provider.LoadBalancerOf, s.Target != nil, "Target")
	target, in, out := s.Target(t), s.create(t), s.create(t)
	if err := p.Register(t.Context(), target, in.Ref()); err != nil {
		t.Fatal(err)
	}
	refusal := errors.New("not the leader")
	refused := provider.WithGuard(t.Context(), func(context.Context) error { return refusal })
	if err := p.Register(refused, target, out.Ref()); err != refusal { //nolint:errorlint // as it is, not wrapped
		t.Errorf("register against the guard: %v, want the guard's own error", err)
	}
	if err := p.Deregister(refused, target, in.Ref()); err != refusal { //nolint:errorlint // as it is, not wrapped
		t.Errorf("deregister against the guard: %v, want the guard's own error", err)
	}
	s.catchUp()
	if ids, err := p.Targets(refused, target); err != nil || !slices.Equal(ids, []string{in.ProviderID}) {
		t.Errorf("registered after refusals: %v, %v; want %s alone", ids, err, in.ProviderID)
	}
	asked := 0
	permitted := provider.WithGuard(t.Context(), func(context.Context) error { asked++; return nil })
	if err := p.Register(permitted, target, out.Ref()); err != nil || asked == 0 {
		t.Errorf("register: %v, after asking the guard %d times", err, asked)
	}
	asked = 0
	if err := p.Deregister(permitted, target, out.Ref()); err != nil || asked == 0 {
		t.Errorf("deregister: %v, after asking the guard %d times", err, asked)
	}
}
