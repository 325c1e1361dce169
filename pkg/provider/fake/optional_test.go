package fake_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/provider/providertest"
)

func images() []fake.Image {
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	arm := map[string]string{"architecture": "arm64"}
	return []fake.Image{
		{ID: "ami-1", Owner: "debian", Name: "debian-13-arm64-20260101", CreatedAt: day(1), Properties: arm},
		{ID: "ami-3", Owner: "debian", Name: "debian-13-arm64-20260103", CreatedAt: day(3), Properties: arm},
		{ID: "ami-2", Owner: "debian", Name: "debian-13-arm64-20260102", CreatedAt: day(5), Properties: arm},
		{ID: "ami-4", Owner: "stranger", Name: "debian-13-arm64-20260109", CreatedAt: day(9), Properties: arm},
		{ID: "ami-5", Owner: "debian", Name: "debian/13-amd64?", CreatedAt: day(9), Properties: map[string]string{"architecture": "amd64"}},
	}
}

func imageCases() []providertest.ImageCase {
	name := func(patterns ...string) provider.ImageFilter {
		return provider.ImageFilter{Name: "name", Values: patterns}
	}
	query := func(sort, order string, filters ...provider.ImageFilter) provider.ImageQuery {
		return provider.ImageQuery{Owners: []string{"debian"}, Sort: sort, Order: order, Filters: filters}
	}
	all := name("debian-13-arm64-*")
	return []providertest.ImageCase{
		{Query: query("creation-date", "desc", all), Want: "ami-2"},
		{Query: query("creation-date", "asc", all), Want: "ami-1"},
		{Query: query("name", "desc", all), Want: "ami-3"},
		{Query: query("name", "asc", all), Want: "ami-1"},
		{Query: query("name", "desc", name("nothing-*", "*-20260102")), Want: "ami-2"},
		{Query: query("name", "desc", name("debian-1?-arm64-*"))}, // only * is special
		{Query: query("name", "desc", name("debian*amd64?")), Want: "ami-5"},
		{Query: query("creation-date", "desc", name("*"), provider.ImageFilter{Name: "architecture", Values: []string{"arm64"}}), Want: "ami-2"},
		{Query: provider.ImageQuery{Sort: "creation-date", Order: "desc", Filters: []provider.ImageFilter{all}}, Want: "ami-4"},
		{Query: provider.ImageQuery{Owners: []string{"unknown"}, Sort: "name", Order: "asc", Filters: []provider.ImageFilter{all}}},
	}
}

func instanceTypes() map[string]provider.InstanceType {
	return map[string]provider.InstanceType{
		"small": {CPUMillis: 500, MemoryBytes: 1 << 30, Arch: "amd64"},
		"large": {CPUMillis: 64_000, MemoryBytes: 512 << 30, Arch: "arm64"},
	}
}

// TestOptionalCallsMeetFaults: the calls that only some providers offer fail, and
// lose their replies, as all others do.
func TestOptionalCallsMeetFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fake.New(fake.Config{AsideLatency: fake.Fixed(time.Second), Images: images()})
		p := w.Open(scope, "server")
		vm, err := p.Create(t.Context(), spec(1))
		if err != nil {
			t.Fatal(err)
		}
		w.FailNext(fake.OpRegister, 1, fake.Fault{Err: provider.ErrThrottled})
		w.FailNext(fake.OpDeregister, 1, fake.Fault{Err: fake.ErrLost, Applied: true})
		if err := p.Register(t.Context(), "t", vm.Ref()); !errors.Is(err, provider.ErrThrottled) || len(w.TargetHealth("t")) != 0 {
			t.Errorf("throttled: %v, registered %v", err, w.TargetHealth("t"))
		}
		if err := p.Register(t.Context(), "t", vm.Ref()); err != nil {
			t.Error(err)
		}
		w.Kill(vm.ID)
		if h := w.TargetHealth("t"); !maps.Equal(h, map[string]bool{vm.ProviderID: false}) {
			t.Errorf("health of a dead machine: %v", h)
		}
		if err := p.Deregister(t.Context(), "t", vm.Ref()); !errors.Is(err, fake.ErrLost) || len(w.TargetHealth("t")) != 0 {
			t.Errorf("reply lost: %v, registered %v", err, w.TargetHealth("t"))
		}
		began := time.Now()
		w.Outage(provider.ErrUnauthorized)
		_, capacity := p.FreeAddresses(t.Context(), []string{"a"})
		_, image := p.ResolveImage(t.Context(), provider.ImageQuery{})
		_, targets := p.Targets(t.Context(), "t")
		_, types := p.InstanceTypes(t.Context(), []string{"small"})
		for _, err := range []error{capacity, image, targets, types} {
			if !errors.Is(err, provider.ErrUnauthorized) {
				t.Errorf("in an outage: %v", err)
			}
		}
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("four calls took %v", took)
		}
		var ops []fake.Op
		for _, c := range w.Calls(fake.OpRegister, fake.OpDeregister, fake.OpTargets) {
			if c.Target != "t" {
				t.Errorf("call without its target: %+v", c)
			}
			ops = append(ops, c.Op)
		}
		if want := []fake.Op{fake.OpRegister, fake.OpRegister, fake.OpDeregister, fake.OpTargets}; !slices.Equal(ops, want) {
			t.Errorf("logged %v, want %v", ops, want)
		}
	})
}
