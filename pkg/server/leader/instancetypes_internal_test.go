package leader

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/operators"
)

// typesFixture is the instance types of a term whose groups use those in use.
type typesFixture struct {
	*instanceTypes
	world *fake.World
	use   []string
	news  int // how often watches were notified
}

func inTypesFixture(t *testing.T, test func(*typesFixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		small := provider.InstanceType{CPUMillis: 500, MemoryBytes: 1 << 30, Arch: "amd64"}
		f := &typesFixture{world: fake.New(fake.Config{InstanceTypes: map[string]provider.InstanceType{"small": small, "twin": small}})}
		f.instanceTypes = &instanceTypes{
			source: f.world.Open(provider.Scope{ClusterID: "c", Shard: "s"}, "a"), timeout: func() time.Duration { return time.Minute },
			used: func() []string { return slices.Clone(f.use) }, told: func() { f.news++ }, random: func() float64 { return 0.5 },
			logger: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1), known: map[string]provider.InstanceType{},
		}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.run(ctx) }()
		defer func() { end(); <-done }()
		test(f)
	})
}

// uses sets the groups' instance types, in order.
func (f *typesFixture) uses(names ...string) {
	synctest.Wait()
	f.use = names
	f.changed()
	synctest.Wait()
}

func (f *typesFixture) asked() int { return len(f.world.Calls(fake.OpInstanceTypes)) }

// TestInstanceTypesAskedOnce: each instance type is queried once, together with other new
// ones, and one that the provider does not have is not queried again.
func TestInstanceTypesAskedOnce(t *testing.T) {
	inTypesFixture(t, func(f *typesFixture) {
		f.uses("small", "unheard-of")
		want := operators.Capacity{CPUMillis: 500, MemoryBytes: 1 << 30, Arch: "amd64"}
		if got, ok := f.capacity("small"); !ok || got != want || f.news != 1 {
			t.Errorf("small has %+v, %t; told %d times", got, ok, f.news)
		}
		for _, name := range []string{"unheard-of", "twin", ""} {
			if got, ok := f.capacity(name); ok {
				t.Errorf("%q has %+v", name, got)
			}
		}
		f.uses("small", "unheard-of")
		f.uses("unheard-of")
		if f.asked() != 1 {
			t.Errorf("asked %d times, want once", f.asked())
		}
		f.uses("twin", "unheard-of")
		if _, ok := f.capacity("twin"); !ok || f.asked() != 2 {
			t.Errorf("of another: known %t, asked %d times", ok, f.asked())
		}
		f.uses("twin")
		if _, ok := f.capacity("small"); ok || len(f.known) != 1 {
			t.Errorf("what no group has is kept: %v", f.known)
		}
	})
}

// TestInstanceTypesAskedAgain: queries are retried with back-off while the provider fails;
// readers never wait.
func TestInstanceTypesAskedAgain(t *testing.T) {
	inTypesFixture(t, func(f *typesFixture) {
		f.world.FailNext(fake.OpInstanceTypes, 1, fake.Fault{Hang: true})
		f.world.FailNext(fake.OpInstanceTypes, 9, fake.Fault{Err: provider.ErrThrottled})
		f.uses("small")
		if _, ok := f.capacity("small"); ok || f.asked() != 1 {
			t.Errorf("known %t, asked %d times", ok, f.asked())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := f.asked(); n < 3 || n > 7 {
			t.Errorf("asked %d times in two minutes of which the first call took one", n)
		}
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if _, ok := f.capacity("small"); !ok || f.asked() != 11 || f.news != 1 {
			t.Errorf("known %t, asked %d times, told %d times", ok, f.asked(), f.news)
		}
	})
}

// TestNoInstanceTypes: a provider without instance types is not queried.
func TestNoInstanceTypes(t *testing.T) {
	none := &instanceTypes{}
	none.run(t.Context())
	if _, ok := none.capacity("small"); ok {
		t.Error("small is known")
	}
}
