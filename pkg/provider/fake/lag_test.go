package fake_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// TestReadsThatLag: what reads show comes to be what is, never later than the lag,
// and on the way there an answer may be older than the one before it.
func TestReadsThatLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fake.New(fake.Config{Seed: 1, Lag: fake.Span{Max: 10 * time.Second}})
		p := w.Open(scope, "a")
		shown := func() bool {
			_, err := provider.GetOne(t.Context(), p, provider.Ref{ID: newID(1)})
			return err == nil
		}
		backwards := func(now bool) (n int) {
			before := !now
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				if is := shown(); is != before {
					if before == now {
						n++
					}
					before = is
				}
			}
			return n
		}
		vm, err := p.Create(t.Context(), spec(1))
		if err != nil {
			t.Fatal(err)
		}
		if shown() || backwards(true) == 0 {
			t.Error("a new VM is shown at once, or always once it was")
		}
		for range 100 {
			if vms, err := p.List(t.Context()); !shown() || err != nil || len(vms) != 1 || vms[0].State != provider.StateRunning {
				t.Fatalf("after the lag the list is %+v, %v", vms, err)
			}
		}
		w.Vanish(vm.ID)
		if len(w.VMs()) != 0 {
			t.Error("the world itself lags")
		}
		if _, err := p.Create(t.Context(), spec(1)); err != nil || len(w.VMs()) != 1 {
			t.Errorf("a create took what was there for what is: %v", err)
		}
		w.Vanish(vm.ID)
		if !shown() || backwards(false) == 0 {
			t.Error("a VM that is gone is not shown any more at once, or never again once it was not")
		}
		if vms, err := p.List(t.Context()); shown() || err != nil || len(vms) != 0 {
			t.Errorf("after the lag the list is %+v, %v", vms, err)
		}
	})
}

// spec asks for the n-th VM.
func spec(n int) provider.Spec {
	id := newID(n)
	return provider.Spec{ID: id, Subnet: "a", Tags: scope.Tags(fleet.Instance{ID: id, Tenant: "default", Group: "web"})}
}

func newID(n int) fleet.InstanceID {
	id, err := fleet.NewID("knc", time.UnixMilli(int64(1_700_000_000_000+n)), zeros{})
	if err != nil {
		panic(err)
	}
	return id
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
