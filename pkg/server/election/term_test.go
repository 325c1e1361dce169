package election_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/election"
)

const latency = 20 * time.Millisecond

func TestConcurrentChecksShareOneRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &switchable{Store: mem.New(mem.Config{Latency: latency})}
		s := startServer(t, store, nil, "a", "host-a")
		defer s.close()
		term, _ := s.leads(5 * time.Second)
		time.Sleep(5 * time.Second)
		before := store.puts.Load()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if err := term.Check(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if puts := store.puts.Load() - before; puts != 1 {
			t.Errorf("100 checks cost %d writes, want 1", puts)
		}
	})
}

func TestActRunsTheRenewalBesideTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, mem.New(mem.Config{Latency: latency}), nil, "a", "host-a")
		defer s.close()
		term, _ := s.leads(5 * time.Second)
		time.Sleep(5 * time.Second)
		for _, c := range []struct{ write, want time.Duration }{
			{latency, latency},                         // both at once
			{3 * time.Second, 3*time.Second + latency}, // the renewal is too old by then
		} {
			began := time.Now()
			err := term.Act(t.Context(), func(context.Context) error { time.Sleep(c.write); return nil })
			if took := time.Since(began); err != nil || took != c.want {
				t.Errorf("act with a write of %s took %s, want %s: %v", c.write, took, c.want, err)
			}
			time.Sleep(2 * time.Second)
		}
		broken := errors.New("broken")
		if err := term.Act(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("error of the write became %v", err)
		}
	})
}

// A renewal that takes longer than the window permits nothing.
func TestSlowStoreIsNoPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := objecttest.NewFaults(mem.New(mem.Config{Latency: latency}), nil)
		s := startServer(t, slow, nil, "a", "host-a")
		defer s.close()
		term, _ := s.leads(5 * time.Second)
		slow.Set(objecttest.Always(objecttest.Outcome{Latency: 1500 * time.Millisecond}))
		time.Sleep(2 * time.Second)
		if err := term.Check(t.Context()); !errors.Is(err, election.ErrUnfenced) {
			t.Errorf("check says %v, want unfenced", err)
		}
		slow.Set(nil)
		if err := term.Check(t.Context()); err != nil {
			t.Errorf("check on a store that is fast again: %v", err)
		}
	})
}

// A term whose lease ended was lost. One that was given up was not.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objecttest.NewFaults(mem.New(mem.Config{Latency: latency}), nil)
		s := startServer(t, store, nil, "a", "host-a")
		first, _ := s.leads(5 * time.Second)
		if first.Lost() {
			t.Error("lost while it leads")
		}
		store.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
		time.Sleep(2 * time.Minute)
		if err := first.Check(t.Context()); !errors.Is(err, election.ErrNotLeader) || !first.Lost() {
			t.Errorf("after a lease without renewal: %v, lost: %v", err, first.Lost())
		}
		store.Set(nil)
		second, _ := s.leads(2 * time.Minute)
		s.close()
		if err := second.Check(t.Context()); !errors.Is(err, election.ErrNotLeader) || second.Lost() {
			t.Errorf("after it was given up: %v, lost: %v", err, second.Lost())
		}
	})
}

// A renewal whose reply is lost is resolved by reading back, and counts from when it was sent.
func TestLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objecttest.NewFaults(mem.New(mem.Config{Latency: latency, HashETags: true}), nil)
		s := startServer(t, store, nil, "a", "host-a")
		defer s.close()
		term, _ := s.leads(5 * time.Second)
		time.Sleep(2 * time.Second)
		store.Set(objecttest.Script(
			objecttest.Outcome{Fault: objecttest.ReplyLost},
			objecttest.Outcome{Fault: objecttest.Late, Delay: 300 * time.Millisecond},
			objecttest.Outcome{Fault: objecttest.Dropped},
		))
		if err := term.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if term.Epoch() != 1 {
			t.Errorf("epoch is %d", term.Epoch())
		}
	})
}

func TestCheckEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &switchable{Store: mem.New(mem.Config{Latency: latency})}
		s := startServer(t, store, nil, "a", "host-a")
		defer s.close()
		term, _ := s.leads(5 * time.Second)
		time.Sleep(2 * time.Second)
		store.down.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := term.Check(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("check says %v", err)
		}
		if err := term.Check(t.Context()); !errors.Is(err, election.ErrNotLeader) {
			t.Errorf("check with the store gone says %v, want not leader when the lease is over", err)
		}
		store.down.Store(false)
	})
}

// Several servers on a faulty store: actions are in the order of epochs. They use Term.Act,
// and the real elector's requests.
func TestFaultyStore(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { faultyStore(t, seed) })
		})
	}
}

func faultyStore(t *testing.T, seed uint64) {
	store := mem.New(mem.Config{HashETags: seed%2 == 0})
	n := newNetwork()
	var mu sync.Mutex
	var last uint64
	acts := 0
	lead := func(ctx context.Context, term *election.Term) error {
		for ctx.Err() == nil {
			// No other goroutine runs between the check and its evaluation.
			err := term.Act(ctx, func(context.Context) error { time.Sleep(latency); return nil })
			if err != nil {
				time.Sleep(latency)
				continue
			}
			mu.Lock()
			if term.Epoch() < last {
				t.Errorf("act in epoch %d after one in epoch %d", term.Epoch(), last)
			}
			last = term.Epoch()
			acts++
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
		}
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var faulty []*objecttest.Faults
	for i := range 3 {
		f := objecttest.NewFaults(store, objecttest.Seeded(seed*10+uint64(i), objecttest.Rates{
			Dropped: 0.1, ReplyLost: 0.15, Late: 0.1, Hung: 0.05, Latency: 300 * time.Millisecond, Delay: 5 * time.Second,
		}))
		faulty = append(faulty, f)
		wg.Go(func() { campaign(ctx, t, f, n, fmt.Sprintf("host-%d", i), lead) })
	}
	time.Sleep(5 * time.Minute)
	for _, f := range faulty {
		f.Set(nil)
	}
	mu.Lock()
	before := acts
	mu.Unlock()
	time.Sleep(time.Minute)
	mu.Lock()
	if acts == before {
		t.Error("no server acts with faults over")
	}
	mu.Unlock()
	stop()
	wg.Wait()
	for _, f := range faulty {
		f.Wait()
	}
}

// campaign starts a server repeatedly, each time for a while.
func campaign(
	ctx context.Context, t *testing.T, store object.Store, n *network, addr string, lead func(context.Context, *election.Term) error,
) {
	for life := 1; ctx.Err() == nil; life++ {
		e, err := election.New(election.Config{
			Store: store, Key: key, Holder: fmt.Sprintf("%s-%d", addr, life), Peers: n,
			Timing:     election.Timing{RenewInterval: 2 * time.Second, LeaseDuration: 8 * time.Second, FenceWindow: time.Second},
			Addrs:      election.Addrs{Election: addr},
			FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
		})
		if err != nil {
			t.Error(err)
			return
		}
		n.listen(addr, e)
		living, cancel := context.WithTimeout(ctx, time.Duration(life)*23*time.Second)
		if err := e.Run(living, lead); err != nil {
			t.Error(err)
		}
		cancel()
		n.kill(addr)
		time.Sleep(time.Second)
	}
}
