package election_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/server/election"
)

var slower = election.Timing{RenewInterval: 20 * time.Second, LeaseDuration: 60 * time.Second, FenceWindow: 5 * time.Second}

func (s *server) setTiming(t election.Timing) {
	s.t.Helper()
	if err := s.elector.SetTiming(t); err != nil {
		s.t.Fatal(err)
	}
}

// TestSetTiming: the record and a listening standby get a new timing at once, and a later
// takeover waits by the new window.
func TestSetTiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		faulty := &switchable{Store: store}
		a := startServer(t, faulty, n, "a", "host-a")
		term, _ := a.leads(5 * time.Second)
		b := startServer(t, store, n, "b", "host-b")
		defer b.close()
		time.Sleep(15 * time.Second)
		gets, changed := faulty.gets.Load(), time.Now()
		a.setTiming(slower)
		time.Sleep(time.Second)
		o, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		r, err := election.ParseRecord(o.Body)
		if err != nil || r.LeaseDuration != slower.LeaseDuration || r.FenceWindow != slower.FenceWindow || r.Epoch != term.Epoch() {
			t.Errorf("the record is %+v, %v", r, err)
		}
		if told, ok := b.elector.Leader(); !ok || told.FenceWindow != slower.FenceWindow || told.LeaseDuration != slower.LeaseDuration {
			t.Errorf("the standby knows %+v, %t", told, ok)
		}
		if n := faulty.gets.Load() - gets; n > 0 {
			t.Errorf("it cost %d reads", n)
		}
		faulty.down.Store(true)
		n.kill("host-a")
		b.leads(10 * time.Second)
		if took := time.Since(changed); took < slower.FenceWindow || took > slower.FenceWindow*11/10+time.Second/2 {
			t.Errorf("acts %s after the last renewal, whose window is %s", took, slower.FenceWindow)
		}
		a.close()
	})
}

// TestSetTimingIdleCost: a leader renews exactly as often as the new timing says, and keeps its
// term.
func TestSetTimingIdleCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &switchable{Store: mem.New(mem.Config{Latency: latency})}
		a := startServer(t, store, nil, "a", "host-a")
		defer a.close()
		a.leads(5 * time.Second)
		a.setTiming(slower)
		time.Sleep(time.Second)
		before := store.puts.Load()
		time.Sleep(10 * time.Minute)
		if puts := store.puts.Load() - before; puts < 29 || puts > 31 {
			t.Errorf("%d writes in 10 minutes, want 30", puts)
		}
		a.setTiming(slower) // no change costs nothing
		time.Sleep(time.Second)
		if puts := store.puts.Load() - before; puts > 31 {
			t.Errorf("the same timing again cost a write")
		}
		if len(a.over) > 0 {
			t.Error("the term ended")
		}
	})
}

// TestSetTimingDuringOutage: the store is unreachable when the lease becomes longer, so the old
// lease ends the term.
func TestSetTimingDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &switchable{Store: mem.New(mem.Config{Latency: latency})}
		a := startServer(t, store, nil, "a", "host-a")
		defer a.close()
		term, _ := a.leads(5 * time.Second)
		time.Sleep(5 * time.Second)
		if err := term.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.down.Store(true)
		a.setTiming(slower)
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if term.Check(ctx) == nil {
			t.Error("acts by a window that no record speaks of")
		}
		time.Sleep(30 * time.Second)
		if len(a.over) != 1 {
			t.Error("the term outlived the lease that the record speaks of")
		}
		store.down.Store(false)
		a.leads(time.Minute)
		quarter := election.Timing{RenewInterval: time.Second, LeaseDuration: 4 * time.Second, FenceWindow: time.Second}
		if err := a.elector.SetTiming(quarter); err == nil || !strings.Contains(err.Error(), "fence_window") {
			t.Errorf("a window of a quarter of the lease: %v", err)
		}
	})
}

// TestSetTimingBeforeRun: the timing may be set before the campaign.
func TestSetTimingBeforeRun(t *testing.T) {
	e, err := election.New(election.Config{
		Store: mem.New(mem.Config{}), Key: key, Holder: "a", Timing: defaults,
		FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SetTiming(slower); err != nil {
		t.Error(err)
	}
}
