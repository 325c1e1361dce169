package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/server/election"
)

const key = "leader/dev-1.json"

var defaults = election.Timing{RenewInterval: 10 * time.Second, LeaseDuration: 30 * time.Second, FenceWindow: time.Second}

// server is one elector with its environment.
type server struct {
	t       *testing.T
	net     *network
	addr    string
	elector *election.Elector
	stop    context.CancelFunc
	done    chan struct{}
	terms   chan *election.Term // each term that started
	over    chan error          // why each ended
}

func (s *server) lead(ctx context.Context, t *election.Term) error {
	s.terms <- t
	<-ctx.Done()
	s.over <- context.Cause(ctx)
	return nil
}

func startServer(t *testing.T, store object.Store, n *network, holder, addr string) *server {
	t.Helper()
	c := election.Config{
		Store: store, Key: key, Holder: holder, Timing: defaults,
		Addrs:      election.Addrs{Election: addr, Operator: addr + "-operator"},
		FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
	}
	if n != nil {
		c.Peers = n
	}
	e, err := election.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{
		t: t, net: n, addr: addr, elector: e, done: make(chan struct{}),
		terms: make(chan *election.Term, 100), over: make(chan error, 100),
	}
	if n != nil {
		n.listen(addr, e)
	}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() {
		defer close(s.done)
		if err := e.Run(ctx, s.lead); err != nil {
			t.Error(err)
		}
	}()
	return s
}

// leads waits for the next term and returns how long it took.
func (s *server) leads(within time.Duration) (*election.Term, time.Duration) {
	s.t.Helper()
	began := time.Now()
	select {
	case term := <-s.terms:
		return term, time.Since(began)
	case <-time.After(within):
		s.t.Fatalf("%s does not lead within %s", s.addr, within)
		return nil, 0
	}
}

// soon waits up to an hour of simulated time: with running timers, an unbounded wait would never
// end.
func soon[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Hour):
		t.Fatalf("not within an hour: %s", what)
	}
	return v
}

func (s *server) close() {
	s.stop()
	soon(s.t, s.done, "the end of the elector")
}

func TestFirstLeaderWaitsTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, mem.New(mem.Config{Latency: 10 * time.Millisecond}), newNetwork(), "a", "host-a")
		defer s.close()
		term, took := s.leads(5 * time.Second)
		if term.Epoch() != 1 {
			t.Errorf("epoch is %d, want 1", term.Epoch())
		}
		if took < 1100*time.Millisecond || took > 1200*time.Millisecond {
			t.Errorf("leads after %s, want 1.1 times the fence window and two requests", took)
		}
		if err := term.Check(t.Context()); err != nil {
			t.Error(err)
		}
		r, ok := s.elector.Leader()
		if !ok || r.Holder != "a" || r.Addrs.Operator != "host-a-operator" {
			t.Errorf("leader is %+v %t, want a", r, ok)
		}
	})
}

func TestHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: 10 * time.Millisecond, HashETags: true}), newNetwork()
		a := startServer(t, store, n, "a", "host-a")
		old, _ := a.leads(5 * time.Second)
		b := startServer(t, store, n, "b", "host-b")
		defer b.close()
		time.Sleep(time.Minute)
		began := time.Now()
		a.close()
		term, _ := b.leads(time.Second)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("handover took %s", took)
		}
		if err := term.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if err := old.Check(t.Context()); !errors.Is(err, election.ErrNotLeader) {
			t.Errorf("the old term's check says %v, want not leader", err)
		}
		if err := soon(t, a.over, "the end of the term"); err == nil {
			t.Error("the term's context ended without a cause")
		}
	})
}

func TestKilledLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: 10 * time.Millisecond}), newNetwork()
		faulty := &switchable{Store: store}
		a := startServer(t, faulty, n, "a", "host-a")
		a.leads(5 * time.Second)
		b := startServer(t, store, n, "b", "host-b")
		defer b.close()
		time.Sleep(time.Minute)
		faulty.down.Store(true) // a killed process writes nothing more
		began := time.Now()
		n.kill("host-a")
		b.leads(2 * time.Second)
		t.Logf("acts %s after the kill", time.Since(began))
		a.close()
	})
}

// A stopped server neither closes connections nor responds.
func TestFrozenLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		cut := &switchable{Store: store}
		a := startServer(t, cut, n, "a", "host-a")
		defer a.close()
		old, _ := a.leads(5 * time.Second)
		b := startServer(t, store, n, "b", "host-b")
		defer b.close()
		time.Sleep(time.Minute)
		cut.down.Store(true)
		n.silence("host-a")
		term, took := b.leads(35 * time.Second)
		t.Logf("acts %s after", took)
		if took < 20*time.Second {
			t.Errorf("leads after %s, silence is no sign of death", took)
		}
		if err := term.Check(t.Context()); err != nil {
			t.Error(err)
		}
		cut.down.Store(false)
		if err := old.Check(t.Context()); !errors.Is(err, election.ErrNotLeader) {
			t.Errorf("the old term's check says %v", err)
		}
		if err := term.Check(t.Context()); err != nil {
			t.Errorf("the old leader's return hurt the new one: %v", err)
		}
	})
}

// A standby whose stream from the leader is silent does not need a second lease to find out that
// the leader renewed meanwhile.
func TestLeaderDiesBehindASilentStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		cut := &switchable{Store: store}
		a := startServer(t, cut, n, "a", "host-a")
		defer a.close()
		a.leads(5 * time.Second)
		b := startServer(t, store, n, "b", "host-b")
		defer b.close()
		time.Sleep(time.Minute)
		n.silence("host-a")
		time.Sleep(25 * time.Second) // two renewals that only the store shows
		cut.down.Store(true)
		_, took := b.leads(2 * time.Minute)
		t.Logf("acts %s after the leader's end", took)
		if most := 33*time.Second + 5*time.Second; took > most {
			t.Errorf("leads after %s, want at most %s: a lease, a tenth and the interval of reads", took, most)
		}
	})
}

func TestLoneServerRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		cut := &switchable{Store: store}
		a := startServer(t, cut, n, "a", "host")
		a.leads(5 * time.Second)
		time.Sleep(time.Minute)
		cut.down.Store(true)
		n.kill("host")
		again := startServer(t, store, n, "a-again", "host")
		defer again.close()
		term, took := again.leads(3 * time.Second)
		t.Logf("acts %s after its start", took)
		if term.Epoch() != 2 {
			t.Errorf("epoch is %d, want 2", term.Epoch())
		}
		a.close()
	})
}

// With default timing a leader may cost 400 requests an hour and a standby 20.
func TestIdleCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		leader, standby, alone := &switchable{Store: store}, &switchable{Store: store}, &switchable{Store: store}
		a := startServer(t, leader, n, "a", "host-a")
		defer a.close()
		a.leads(5 * time.Second)
		b := startServer(t, standby, n, "b", "host-b")
		defer b.close()
		c := startServer(t, alone, nil, "c", "host-c")
		defer c.close()
		time.Sleep(time.Hour)
		for _, x := range []struct {
			name  string
			store *switchable
			most  int64
		}{{"leader", leader, 400}, {"standby", standby, 20}, {"standby without peers", alone, 800}} {
			if n := x.store.gets.Load() + x.store.puts.Load(); n > x.most {
				t.Errorf("%s sent %d requests in an hour, want at most %d", x.name, n, x.most)
			} else {
				t.Logf("%s: %d requests an hour", x.name, n)
			}
		}
	})
}

func TestStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &switchable{Store: mem.New(mem.Config{Latency: latency})}
		s := startServer(t, store, newNetwork(), "a", "host-a")
		defer s.close()
		term, _ := s.leads(5 * time.Second)
		time.Sleep(time.Minute)
		store.down.Store(true)
		time.Sleep(15 * time.Second)
		store.down.Store(false)
		if err := term.Check(t.Context()); err != nil {
			t.Errorf("after a short outage: %v", err)
		}
		time.Sleep(time.Minute)
		store.down.Store(true)
		select {
		case err := <-s.over:
			t.Logf("the term ended: %v", err)
		case <-time.After(31 * time.Second):
			t.Error("the term outlives its lease")
		}
		if _, ok := s.elector.Leader(); ok {
			t.Error("it still points to itself as the leader")
		}
		store.down.Store(false)
		next, _ := s.leads(20 * time.Second)
		if next.Epoch() != 2 {
			t.Errorf("epoch is %d, want 2", next.Epoch())
		}
	})
}

// A lead that returns lets another server try.
func TestLeadGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		a, err := election.New(election.Config{
			Store: store, Key: key, Holder: "a", Timing: defaults, Addrs: election.Addrs{Election: "host-a"}, Peers: n,
			FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		n.listen("host-a", a)
		ctx, cancel := context.WithCancel(t.Context())
		tries := make(chan uint64, 10)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = a.Run(ctx, func(_ context.Context, term *election.Term) error {
				time.Sleep(time.Minute)
				tries <- term.Epoch()
				return errors.New("no configuration")
			})
		}()
		time.Sleep(10 * time.Second)
		b := startServer(t, store, n, "b", "host-b")
		term, took := b.leads(2 * time.Minute)
		if term.Epoch() != 2 || took > time.Minute {
			t.Errorf("the other leads epoch %d after %s", term.Epoch(), took)
		}
		b.close()
		if epoch := soon(t, tries, "the end of the first try"); epoch != 1 {
			t.Errorf("first try in epoch %d", epoch)
		}
		if epoch := soon(t, tries, "the end of the second try"); epoch != 3 {
			t.Errorf("second try in epoch %d, want 3", epoch)
		}
		cancel()
		soon(t, done, "the end of the elector")
	})
}

// A server that is still waiting must not write a release.
func TestNoReleaseWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(mem.Config{Latency: latency})
		a := startServer(t, store, newNetwork(), "a", "host-a")
		time.Sleep(500 * time.Millisecond)
		a.close()
		o, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := election.ParseRecord(o.Body); err != nil || r.Released || r.Holder != "a" {
			t.Errorf("record is %+v %v, want a's, not released", r, err)
		}
	})
}

func TestUnreadableRecordIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(mem.Config{Latency: latency})
		if _, err := store.Put(t.Context(), key, []byte("{}"), object.Precondition{}); err != nil {
			t.Fatal(err)
		}
		a := startServer(t, store, newNetwork(), "a", "host-a")
		defer a.close()
		time.Sleep(10 * time.Minute)
		if o, err := store.Get(t.Context(), key); err != nil || string(o.Body) != "{}" {
			t.Errorf("record became %q %v", o.Body, err)
		}
		if err := store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		a.leads(10 * time.Second)
	})
}
