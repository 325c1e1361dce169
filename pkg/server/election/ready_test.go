package election_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/election"
)

// worker is a server whose term works only while it is not broken.
type worker struct {
	elector *election.Elector
	needs   *election.Needs
	broken  atomic.Bool
	probes  atomic.Int64
	leads   chan time.Time // start of each term
	stop    context.CancelFunc
	done    chan struct{}
}

var errBroken = errors.New("no route to the provider")

func (w *worker) try() error {
	if w.broken.Load() {
		return errBroken
	}
	return nil
}

// work lists every few seconds, as a term does.
func (w *worker) work(ctx context.Context, _ *election.Term) error {
	w.leads <- time.Now()
	for ctx.Err() == nil {
		w.needs.Start(election.NeedList).End(w.try())
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
	return nil
}

func startWorker(t *testing.T, store object.Store, n *network, name string) *worker {
	t.Helper()
	w := &worker{needs: election.NewNeeds(nil), leads: make(chan time.Time, 100), done: make(chan struct{})}
	timing := defaults
	timing.GiveUp = 30 * time.Second
	var err error
	w.elector, err = election.New(election.Config{
		Store: store, Key: key, Holder: name, Timing: timing, Addrs: election.Addrs{Election: "host-" + name}, Peers: n, Needs: w.needs,
		FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
		Probe:      func(context.Context) error { w.probes.Add(1); return w.try() },
	})
	if err != nil {
		t.Fatal(err)
	}
	n.listen("host-"+name, w.elector)
	ctx, stop := context.WithCancel(t.Context())
	w.stop = func() { stop(); <-w.done }
	go func() {
		defer close(w.done)
		if err := w.elector.Run(ctx, w.work); err != nil {
			t.Error(err)
		}
	}()
	time.Sleep(5 * time.Second)
	return w
}

// TestLeadGoesToOneThatCanAct: of two standbys one can't act either; the other one leads, and
// the objects of the checks are deleted.
func TestLeadGoesToOneThatCanAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		a, b, c := startWorker(t, store, n, "a"), startWorker(t, store, n, "b"), startWorker(t, store, n, "c")
		defer a.stop()
		defer b.stop()
		defer c.stop()
		<-a.leads
		b.broken.Store(true)
		a.broken.Store(true)
		began := time.Now()
		if took := (<-c.leads).Sub(began); took < 30*time.Second || took > 40*time.Second {
			t.Errorf("c leads after %s, want give_up and a few seconds", took)
		}
		time.Sleep(time.Minute)
		if len(b.leads) > 0 {
			t.Error("b leads, which can't act")
		}
		if p, err := a.elector.AwaitBlocked(t.Context(), election.Blocked{}); err != nil || p.To != "c" || p.Need != election.NeedList {
			t.Errorf("a says %+v %v, want that it gave up to c for want of a list", p, err)
		}
		if left, err := object.All(t.Context(), store, "probe/"); err != nil || len(left) > 0 {
			t.Errorf("left in the store: %v %v", left, err)
		}
	})
}

// TestLeadStaysWhereNobodyCanAct: the lead stays for hours, and the standbys are asked rarely.
func TestLeadStaysWhereNobodyCanAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		a, b := startWorker(t, store, n, "a"), startWorker(t, store, n, "b")
		defer a.stop()
		defer b.stop()
		<-a.leads
		a.broken.Store(true)
		b.broken.Store(true)
		time.Sleep(6 * time.Hour)
		if len(a.leads)+len(b.leads) > 0 {
			t.Errorf("a began %d more terms, b %d", len(a.leads), len(b.leads))
		}
		if asked := b.probes.Load(); asked < 60 || asked > 80 {
			t.Errorf("b was asked %d times in 6h, want every five minutes", asked)
		}
		b.broken.Store(false)
		if took := -time.Until(<-b.leads); took > 0 {
			t.Errorf("b leads %s ago", took)
		}
	})
}

// TestLeadIsNotPassedOn: no leader can act, although each passes its check. The lead changes
// less and less often.
func TestLeadIsNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		a, b := startWorker(t, store, n, "a"), startWorker(t, store, n, "b")
		defer a.stop()
		defer b.stop()
		fails := func(w *worker) { // only for the term
			for {
				select {
				case <-w.done:
					return
				case <-time.After(time.Second):
					w.needs.Start(election.NeedFence).End(election.ErrUnfenced)
				}
			}
		}
		go fails(a)
		go fails(b)
		time.Sleep(6 * time.Hour)
		// Each may step down at 0, 10, 30, 70, 150, 310 minutes and so on.
		if terms := len(a.leads) + len(b.leads); terms < 6 || terms > 13 {
			t.Errorf("%d terms in 6h, want at most 13", terms)
		}
	})
}

// TestSlowWriteIsNoProof: a standby whose writes take longer than the fence window can't act.
func TestSlowWriteIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		slow := objecttest.NewFaults(store, objecttest.Always(objecttest.Outcome{Latency: 1200 * time.Millisecond}))
		a, b := startWorker(t, store, n, "a"), startWorker(t, slow, n, "b")
		defer a.stop()
		defer b.stop()
		<-a.leads
		a.broken.Store(true)
		time.Sleep(30 * time.Minute)
		if b.probes.Load() == 0 || len(b.leads) > 0 {
			t.Errorf("b was asked %d times and led %d times, want some and never", b.probes.Load(), len(b.leads))
		}
		slow.Set(nil)
		<-b.leads
	})
}

// TestNamedServerIsGone: the lead is given to a server that dies at that moment. A lease later
// the previous leader leads again.
func TestNamedServerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		cut := &switchable{Store: store}
		a := startWorker(t, store, n, "a")
		defer a.stop()
		b := startWorker(t, cut, n, "b")
		defer b.stop()
		<-a.leads
		a.broken.Store(true)
		for b.probes.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(latency + time.Millisecond) // its write has landed
		cut.down.Store(true)
		began := time.Now()
		if took := (<-a.leads).Sub(began); took < 30*time.Second || took > 40*time.Second {
			t.Errorf("a leads again after %s, want a lease", took)
		}
		if len(b.leads) > 0 {
			t.Error("b leads without a store")
		}
	})
}

// TestAnswersOverHTTP posts to a leader that did not ask, and invalid answers.
func TestAnswersOverHTTP(t *testing.T) {
	config := mutualTLS(t)
	e := newElector(t, mem.New(mem.Config{}), "a", "", nil, nil)
	leads, _ := run(t, e)
	<-leads
	mux := http.NewServeMux()
	mux.Handle("POST "+election.ReadyPath, e.Answers())
	addr := httpServer(t, mux, config).Listener.Addr().String()
	good := election.Answer{Server: "b", Leader: "a", Ask: 1, Ready: true}
	if err := election.NewHTTPDialer(config).Answer(t.Context(), addr, good); err != nil {
		t.Error(err)
	}
	time.Sleep(50 * time.Millisecond)
	if r, ok := e.Leader(); !ok || r.Epoch != 1 {
		t.Errorf("an answer to no question ended the term: %+v %t", r, ok)
	}
	if err := election.NewHTTPDialer(config).Answer(t.Context(), addr, election.Answer{Server: "b", Leader: "a"}); err == nil {
		t.Error("an answer without a question is taken")
	}
	for body, want := range map[string]int{
		`{"server":"b","leader":"a","ask":1,"ready":false,"later":[1]}`:      http.StatusNoContent,
		`{"server":"b","leader":"a","ask":1}` + strings.Repeat(" ", 5000):    http.StatusBadRequest,
		`{"server":"b","leader":"a","ask":-1}`:                               http.StatusBadRequest,
		`{"server":"` + strings.Repeat("b", 300) + `","leader":"a","ask":1}`: http.StatusBadRequest,
		`{"server":"b","ask":1}`:                                             http.StatusBadRequest,
		``:                                                                   http.StatusBadRequest,
	} {
		w := httptest.NewRecorder()
		e.Answers().ServeHTTP(w, httptest.NewRequest(http.MethodPost, election.ReadyPath, strings.NewReader(body)))
		if w.Code != want {
			t.Errorf("%.60s gets %d, want %d", body, w.Code, want)
		}
	}
	w := httptest.NewRecorder()
	if e.Answers().ServeHTTP(w, httptest.NewRequest(http.MethodGet, election.ReadyPath, nil)); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET gets %d", w.Code)
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"server":"b","leader":"a","ask":1,"ready":true}`))
	f.Add([]byte(`{"server":"b","leader":"a","ask":18446744073709551615,"later":{}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := election.ParseAnswer(b)
		if err != nil {
			return
		}
		if a.Server == "" || a.Leader == "" || a.Ask == 0 || len(b) > 4<<10 {
			t.Errorf("accepted %+v", a)
		}
		again, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		// Invalid UTF-8 is longer when encoded again.
		if back, err := election.ParseAnswer(again); err == nil && back != a {
			t.Errorf("%+v does not survive a round trip: %+v", a, back)
		}
	})
}
