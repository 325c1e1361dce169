package fake_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/provider/providertest"
)

var scope = provider.Scope{ClusterID: "c", Shard: "s"}

func harness(cfg fake.Config) providertest.Harness {
	cfg.Capacity = map[string]int{"subnet-a": 100, "subnet-b": 5}
	cfg.Images, cfg.Targets, cfg.InstanceTypes = images(), []string{}, instanceTypes()
	cfg.CheckArgs = func(spec provider.Spec) error {
		var wrong provider.FieldErrors
		if spec.Args["size"] == "huge" {
			wrong.Addf("args.size", "there is no huge machine: want small")
		}
		return wrong.Err()
	}
	return providertest.Harness{
		Around: synctest.Test,
		New: func(*testing.T) providertest.World {
			w := fake.New(cfg)
			return providertest.World{
				Open:     func(_ *testing.T, s provider.Scope) provider.Provider { return w.Open(s, "server") },
				Kill:     func(_ *testing.T, vm provider.VM) { w.Explain(vm.ID, "the plug was pulled"); w.Kill(vm.ID) },
				Killed:   "the plug was pulled",
				Plant:    func(_ *testing.T, tags map[string]string) { w.Plant(tags) },
				Patience: time.Minute, Eventual: cfg.Lag.Max,

				Subnet: "subnet-b", Images: imageCases(), InstanceTypes: instanceTypes(),
				BadArgs:       []map[string]any{{"size": "huge"}},
				Short:         func(*testing.T) func() { w.Outage(provider.ErrQuota); return w.Mend },
				Target:        func(t *testing.T) string { w.AddTarget(t.Name()); return t.Name() },
				MissingTarget: "nowhere",
			}
		},
	}
}

func TestConformance(t *testing.T) {
	t.Run("AtOnce", func(t *testing.T) { providertest.Run(t, harness(fake.Config{})) })
	t.Run("Slow", func(t *testing.T) {
		slow := fake.Span{Min: 50 * time.Millisecond, Max: 2 * time.Second}
		providertest.Run(t, harness(fake.Config{
			Seed: 1, CreateLatency: slow, GetLatency: slow, ListLatency: slow, DeleteLatency: slow,
			Boot: slow, Shutdown: slow, Remember: 10 * time.Second,
		}))
	})
	t.Run("Paged", func(t *testing.T) { providertest.Run(t, harness(fake.Config{ListPage: 1})) })
	t.Run("Eventual", func(t *testing.T) {
		providertest.Run(t, harness(fake.Config{Seed: 1, Lag: fake.Span{Max: 5 * time.Second}, Boot: fake.Fixed(time.Second), ListPage: 2}))
	})
}

func TestFaults(t *testing.T) {
	for _, kind := range []error{
		provider.ErrNotFound, provider.ErrSubnetFull, provider.ErrQuota, provider.ErrThrottled,
		provider.ErrInvalid, provider.ErrUnauthorized, fake.ErrLost,
	} {
		w := fake.New(fake.Config{})
		p := w.Open(scope, "a")
		w.FailNext(fake.OpCreate, 2, fake.Fault{Err: kind})
		w.FailNext(fake.OpCreate, 1, fake.Fault{Err: kind, Applied: true})
		for i, exists := range []bool{false, false, true} {
			if _, err := p.Create(t.Context(), spec(1)); !errors.Is(err, kind) {
				t.Errorf("create %d answers %v, want %v", i, err, kind)
			}
			if got := len(w.VMs()) == 1; got != exists {
				t.Errorf("%v: after create %d a VM exists: %v, want %v", kind, i, got, exists)
			}
		}
		if vm, err := p.Create(t.Context(), spec(1)); err != nil || vm.ID != spec(1).ID {
			t.Errorf("create after the script: %+v, %v", vm, err)
		}
		calls := w.CreateCalls(spec(1).ID)
		if len(calls) != 4 || calls[1].Applied || !calls[2].Applied || !errors.Is(calls[2].Err, kind) || calls[3].Err != nil {
			t.Errorf("%v: log shows %+v", kind, calls)
		}
	}
}

// TestListPages are calls of their own, each with its time and its faults.
func TestListPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fake.New(fake.Config{ListLatency: fake.Fixed(6 * time.Second), ListPage: 2})
		p := w.Open(scope, "a")
		for n := range 5 {
			if _, err := p.Create(t.Context(), spec(n)); err != nil {
				t.Fatal(err)
			}
		}
		pages := 0
		ctx := provider.WithListing(t.Context(), func() { pages++ })
		began := time.Now()
		vms, err := p.List(ctx)
		if err != nil || len(vms) != 5 || !slices.IsSortedFunc(vms, provider.Compare) || pages != 2 || time.Since(began) != 18*time.Second {
			t.Errorf("%d VMs, %v, %d pages told of, %v", len(vms), err, pages, time.Since(began))
		}
		w.FailNext(fake.OpList, 1, fake.Fault{})
		w.FailNext(fake.OpList, 1, fake.Fault{Err: fake.ErrLost})
		if vms, err := p.List(ctx); !errors.Is(err, fake.ErrLost) {
			t.Errorf("a list whose second page is lost: %d VMs, %v", len(vms), err)
		}
	})
}

func TestOutage(t *testing.T) {
	w := fake.New(fake.Config{})
	p := w.Open(scope, "a")
	w.Outage(provider.ErrUnauthorized)
	_, listErr := p.List(t.Context())
	_, getErr := provider.GetOne(t.Context(), p, provider.Ref{ID: newID(1)})
	if !errors.Is(listErr, provider.ErrUnauthorized) || !errors.Is(getErr, provider.ErrUnauthorized) {
		t.Errorf("during the outage: list %v, get %v", listErr, getErr)
	}
	w.Outage(nil)
	if _, err := p.List(t.Context()); err != nil {
		t.Errorf("after the outage: %v", err)
	}
}

func TestCapacity(t *testing.T) {
	w := fake.New(fake.Config{Capacity: map[string]int{"a": 1}})
	p := w.Open(scope, "a")
	if _, err := p.Create(t.Context(), spec(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Create(t.Context(), spec(2)); !errors.Is(err, provider.ErrSubnetFull) {
		t.Errorf("create in a full subnet: %v", err)
	}
	if _, err := p.Create(t.Context(), spec(1)); err != nil {
		t.Errorf("create of what exists in a full subnet: %v", err)
	}
	lost := spec(3)
	lost.Subnet = "b"
	if _, err := p.Create(t.Context(), lost); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("create in a subnet that does not exist: %v", err)
	}
	if err := provider.DeleteOne(t.Context(), p, provider.Ref{ID: newID(1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Create(t.Context(), spec(2)); err != nil {
		t.Errorf("create after room was made: %v", err)
	}
}

func TestLifeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fake.New(fake.Config{
			CreateLatency: fake.Fixed(time.Second), Boot: fake.Fixed(10 * time.Second), Lifetime: fake.Fixed(time.Minute),
			Shutdown: fake.Fixed(5 * time.Second), Remember: 30 * time.Second,
		})
		p := w.Open(scope, "a")
		start := time.Now()
		if _, err := p.Create(t.Context(), spec(1)); err != nil {
			t.Fatal(err)
		}
		at := func(after time.Duration, want provider.State) {
			t.Helper()
			time.Sleep(time.Until(start.Add(after)))
			synctest.Wait()
			vm, err := provider.GetOne(t.Context(), p, provider.Ref{ID: newID(1)})
			if errors.Is(err, provider.ErrNotFound) {
				vm.State, err = "gone", nil
			}
			if err != nil || vm.State != want {
				t.Errorf("after %v: %s, %v; want %s", after, vm.State, err, want)
			}
		}
		at(time.Second, provider.StatePending)
		at(11*time.Second, provider.StateRunning)
		at(71*time.Second, provider.StateStopped)
		if err := provider.DeleteOne(t.Context(), p, provider.Ref{ID: newID(1)}); err != nil {
			t.Fatal(err)
		}
		at(72*time.Second, provider.StateDeleting)
		at(76*time.Second, provider.StateDeleted)
		at(106*time.Second, "gone")
	})
}

func TestHandOfFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fake.New(fake.Config{Shutdown: fake.Fixed(time.Second)})
		p := w.Open(scope, "a")
		for n := range 4 {
			if _, err := p.Create(t.Context(), spec(n)); err != nil {
				t.Fatal(err)
			}
		}
		if !w.Kill(newID(0)) || !w.Stop(newID(1)) || !w.Fail(newID(2)) || !w.Vanish(newID(3)) || w.Kill(newID(9)) {
			t.Error("a machine was missed, or one struck that is not there")
		}
		states := func() []provider.State {
			vms, err := p.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var out []provider.State
			for _, vm := range vms {
				out = append(out, vm.State)
			}
			return out
		}
		if got, want := states(), []provider.State{"stopped", "stopping", "failed"}; !slices.Equal(got, want) {
			t.Errorf("states are %v, want %v", got, want)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got, want := states(), []provider.State{"stopped", "stopped", "failed"}; !slices.Equal(got, want) {
			t.Errorf("a second later %v, want %v", got, want)
		}
	})
}

// TestLandsAfterCancel gives up on creates that are on their way: what was sent
// may still take effect, at the time it would have.
func TestLandsAfterCancel(t *testing.T) {
	for _, lands := range []float64{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			w := fake.New(fake.Config{CreateLatency: fake.Fixed(10 * time.Second), LandsAfterCancel: lands})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := w.Open(scope, "a").Create(ctx, spec(1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("create answers %v", err)
			}
			if n := len(w.VMs()); n != 0 {
				t.Fatalf("%d VMs before the request arrived", n)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			call := w.CreateCalls(newID(1))[0]
			if got := float64(len(w.VMs())); got != lands || call.Applied != (lands == 1) || call.End.Sub(call.Start) != time.Second {
				t.Errorf("lands %v: %v VMs, call %+v", lands, got, call)
			}
		})
	}
}

func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fake.New(fake.Config{LandsAfterCancel: 1})
		w.FailNext(fake.OpDelete, 1, fake.Fault{Hang: true})
		p := w.Open(scope, "a")
		if _, err := p.Create(t.Context(), spec(1)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := provider.DeleteOne(ctx, p, provider.Ref{ID: newID(1)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a delete that hangs answers %v", err)
		}
		if len(w.VMs()) != 1 {
			t.Error("a delete that hangs took effect")
		}
	})
}

// TestSeedDecides runs the same load in many goroutines: what happens to each
// instance depends on the seed alone.
func TestSeedDecides(t *testing.T) {
	history := func(seed uint64) (out []string) {
		synctest.Test(t, func(t *testing.T) {
			w := fake.New(fake.Config{
				Seed: seed, CreateLatency: fake.Span{Min: 1, Max: time.Second}, Boot: fake.Span{Max: time.Minute},
				Lifetime: fake.Span{Min: time.Minute, Max: time.Hour},
				Chances: []fake.Chance{
					{Op: fake.OpCreate, Probability: 0.3, Fault: fake.Fault{Err: provider.ErrThrottled}},
					{Probability: 0.2, Fault: fake.Fault{Err: fake.ErrLost, Applied: true}},
				},
			})
			p := w.Open(scope, "a")
			for n := range 50 {
				go func() {
					for range 3 {
						_, _ = p.Create(t.Context(), spec(n))
					}
				}()
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			for n := range 50 {
				for _, c := range w.CreateCalls(newID(n)) {
					out = append(out, fmt.Sprint(n, c.End.Sub(c.Start), c.Err, c.Applied))
				}
			}
			for _, vm := range w.VMs() {
				out = append(out, fmt.Sprint(vm.ID, vm.State, vm.CreatedAt))
			}
		})
		return out
	}
	if a, b := history(7), history(7); !slices.Equal(a, b) {
		t.Errorf("one seed, two histories:\n%v\n%v", a, b)
	}
	if a, b := history(7), history(8); slices.Equal(a, b) {
		t.Error("two seeds, one history")
	}
}

func TestWatchBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fake.New(fake.Config{})
		p := w.Open(scope, "a")
		var seen []provider.State
		done := make(chan error)
		go func() {
			done <- p.Watch(t.Context(), func(e provider.Event) { seen = append(seen, e.VM.State) })
		}()
		synctest.Wait()
		if _, err := p.Create(t.Context(), spec(1)); err != nil {
			t.Fatal(err)
		}
		w.Kill(newID(1))
		broken := errors.New("stream reset")
		w.BreakWatches(broken)
		if err := <-done; !errors.Is(err, broken) {
			t.Errorf("watch ended with %v", err)
		}
		if want := []provider.State{"pending", "running", "stopped"}; !slices.Equal(seen, want) {
			t.Errorf("saw %v, want %v", seen, want)
		}
	})
}

// BenchmarkList is a sweep's view of 10,000 VMs.
func BenchmarkList(b *testing.B) {
	w := fake.New(fake.Config{})
	p := w.Open(scope, "a")
	for n := range 10_000 {
		if _, err := p.Create(b.Context(), spec(n)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if vms, err := p.List(b.Context()); err != nil || len(vms) != 10_000 {
			b.Fatal(len(vms), err)
		}
	}
}

// BenchmarkCreateDelete churns one VM in a world of 10,000.
func BenchmarkCreateDelete(b *testing.B) {
	w := fake.New(fake.Config{})
	p := w.Open(scope, "a")
	for n := range 10_000 {
		if _, err := p.Create(b.Context(), spec(n)); err != nil {
			b.Fatal(err)
		}
	}
	one := spec(10_000)
	for b.Loop() {
		if _, err := p.Create(b.Context(), one); err != nil {
			b.Fatal(err)
		}
		if err := provider.DeleteOne(b.Context(), p, provider.Ref{ID: one.ID}); err != nil {
			b.Fatal(err)
		}
	}
}
