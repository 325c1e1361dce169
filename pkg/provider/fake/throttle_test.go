package fake_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fake.New(fake.Config{Throttles: []fake.Throttle{
			{Ops: []fake.Op{fake.OpCreate, fake.OpDelete}, PerSecond: 2, Burst: 3}, {Ops: []fake.Op{fake.OpList}, PerSecond: 1},
		}})
		p := w.Open(scope, "a")
		create := func(n int) (refused bool) {
			_, err := p.Create(t.Context(), spec(n))
			if err != nil && !errors.Is(err, provider.ErrThrottled) {
				t.Fatal(err)
			}
			return err != nil
		}
		for n, want := range []bool{false, false, false, true, true} {
			if create(n) != want {
				t.Errorf("create %d: refused %t", n, !want)
			}
		}
		if n := len(w.VMs()); n != 3 {
			t.Errorf("%d machines, want 3", n)
		}
		time.Sleep(time.Second) // two more
		vms := w.VMs()
		if err := p.Delete(t.Context(), []provider.Ref{vms[0].Ref(), vms[1].Ref()})[0]; err != nil {
			t.Errorf("delete of two machines, which is one call: %v", err)
		}
		if create(5) || !create(6) {
			t.Errorf("deletes and creates do not share the bucket")
		}
		if got := p.Get(t.Context(), []provider.Ref{vms[2].Ref()}); got[0].Err != nil {
			t.Errorf("a kind without a bucket: %v", got[0].Err)
		}
		if _, err := p.List(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := p.List(t.Context()); !errors.Is(err, provider.ErrThrottled) {
			t.Errorf("the second list of a second: %v", err)
		}
		w.Throttle()
		if create(7) {
			t.Errorf("refused without a bucket")
		}
	})
}
