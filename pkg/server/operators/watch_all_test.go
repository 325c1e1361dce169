package operators_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

type events = []*nstancev1.WatchInstancesResponse

// all requests a watch of all instances, from a resume token.
func all(token string) *nstancev1.WatchInstancesRequest {
	return &nstancev1.WatchInstancesRequest{All: true, ResumeToken: token}
}

// last returns the resume token of the last event.
func last(t *testing.T, e events) string {
	t.Helper()
	if len(e) == 0 {
		t.Fatal("there are no events")
	}
	return e[len(e)-1].GetResumeToken()
}

// becomes changes an instance, and notifies the watches.
func (f *fixture) becomes(i fleet.Instance) {
	f.put(i)
	f.watches.Changed(i.GroupKey(), i.ID)
	time.Sleep(time.Second)
}

// TestWatchAll follows the tenant's instances through their whole life.
func TestWatchAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for n, phase := range []fleet.Phase{fleet.Pending, fleet.Running, fleet.Draining, fleet.Deleting, fleet.Deleted} {
			f.put(record(n+1, "default", "web", phase))
		}
		f.put(record(9, "prod", "web", fleet.Running))
		w := f.resumeInstances("default", all(""))
		same(t, seen(w.take()), "1 pending", "2 running", "3 draining", "4 deleting", "5 deleted", "end")
		for _, phase := range []fleet.Phase{fleet.Pending, fleet.Running, fleet.Draining, fleet.Deleting, fleet.Deleted} {
			f.becomes(record(6, "default", "web", phase))
			f.becomes(record(8, "prod", "web", phase))
		}
		same(t, seen(w.take()), "6 pending", "6 running", "6 draining", "6 deleting", "6 deleted")
		registered := record(1, "default", "web", fleet.Running)
		at := time.Now()
		registered.RegisteredAt = &at
		f.becomes(registered)
		if have := w.take(); len(have) != 1 || !have[0].GetInstance().GetRegisteredAt().AsTime().Equal(at) {
			t.Errorf("told %v", have)
		}
		f.locked(func() { f.health[registered.ID] = operators.Health{LastReportAt: time.Now()} })
		f.becomes(registered)
		same(t, seen(w.take())) // further reports are not events
		f.locked(func() { clear(f.instances) })
		f.watches.Changed(fleet.GroupKey{}, registered.ID)
		time.Sleep(time.Second)
		same(t, seen(w.take()), "1 deleted")
	})
}

// TestResumedWatch: a watch resumes where the previous one was interrupted.
func TestResumedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for n := 1; n <= 3; n++ {
			f.put(record(n, "default", "web", fleet.Running))
		}
		w := f.resumeInstances("default", all(""))
		place := last(t, w.take())
		w.stop()
		f.becomes(record(2, "default", "web", fleet.Draining))
		f.becomes(record(4, "default", "web", fleet.Pending))
		f.becomes(record(5, "prod", "web", fleet.Pending))
		f.becomes(record(3, "default", "web", fleet.Deleted))
		w = f.resumeInstances("default", all(place))
		have := w.take()
		same(t, seen(have), "2 draining", "3 deleted", "4 pending", "resumed")
		for n, e := range have[:3] {
			if e.GetResumeToken() != place || e.GetResumed() {
				t.Errorf("event %d names the place %q, resumed: %t; it came from %q", n, e.GetResumeToken(), e.GetResumed(), place)
			}
		}
		f.becomes(record(4, "default", "web", fleet.Running))
		have = w.take()
		same(t, seen(have), "4 running")
		w.stop()
		same(t, seen(f.resumeInstances("default", all(last(t, have))).take()), "resumed")
		w = f.watchInstances("default")
		have = w.take()
		same(t, seen(have), "2 draining", "end")
		w.stop()
		f.becomes(record(2, "default", "web", fleet.Deleted))
		w = f.resumeInstances("default", &nstancev1.WatchInstancesRequest{ResumeToken: last(t, have)})
		same(t, seen(w.take()), "2 deleted", "resumed") // only leaving instances
	})
}

// TestWholeAgain: a stale resume token is no error, and gets everything.
func TestWholeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(record(1, "default", "web", fleet.Running))
		f.put(record(2, "default", "web", fleet.Draining))
		w := f.resumeInstances("default", all(""))
		have := w.take()
		place, within := last(t, have), have[0].GetResumeToken()
		w.stop()
		elsewhere := strings.Replace(place, fmt.Sprint(epoch), fmt.Sprint(epoch+1), 1)
		if elsewhere == place {
			t.Fatalf("the place %q does not name the term", place)
		}
		otherwise := place[:strings.LastIndex(place, ".")+1] + "0123456789abcdef"
		whole := []string{"1 running", "2 draining", "end"}
		for name, token := range map[string]string{
			"none": "", "within a snapshot": within, "of another term": elsewhere, "of another writer": otherwise,
		} {
			t.Log(name)
			w := f.resumeInstances("default", all(token))
			time.Sleep(time.Second)
			same(t, seen(w.take()), whole...)
			w.stop()
		}
		w = f.resumeInstances("default", &nstancev1.WatchInstancesRequest{ResumeToken: place})
		time.Sleep(time.Second)
		same(t, seen(w.take()), "2 draining", "end")
		w.stop()
		time.Sleep(operators.ResumeWithin + time.Second)
		w = f.resumeInstances("default", all(place))
		time.Sleep(time.Second)
		same(t, seen(w.take()), whole...)
	})
}

// TestNoPlace: a token that no server has written is refused.
func TestNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for _, token := range []string{
			"7", "7.all", "7.all.1", "7.all.1.2", "7.some.1.0123456789abcdef", "07.all.1.0123456789abcdef", "7.all.+1.0123456789abcdef",
			" 7.all.1.0123456789abcdef", "7.all.-1.0123456789abcdef", "7.all.1.0123456789abcdef.", "\xff",
		} {
			w := f.resumeInstances("default", all(token))
			soon(t, w.done, "the end of the watch")
			var wrong *rpc.ViolationsError
			if !errors.As(w.err, &wrong) || len(wrong.Violations) != 1 || wrong.Violations[0].Field != "resume_token" {
				t.Errorf("%q: %v", token, w.err)
			} else if want := "invalid resume_token: pass one from a watch event unchanged"; wrong.Message != want {
				t.Errorf("%q: %q, want %q", token, wrong.Message, want)
			}
		}
	})
}

// watcher tracks a tenant's instances with a watch of all.
type watcher struct {
	known, shown map[string]string // phases by id; shown: in the stream's snapshot
	place        string
}

func (w *watcher) take(stream events) {
	for _, e := range stream {
		id, phase := e.GetInstance().GetId(), e.GetInstance().GetPhase().String()
		switch {
		case e.GetType() != nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END:
			w.known[id], w.shown[id] = phase, phase
		case !e.GetResumed():
			w.known = maps.Clone(w.shown)
		}
		w.place = e.GetResumeToken()
	}
}

// TestResumesAgree: clients whose streams are interrupted all the time, while instances come
// and go, end up with the current state, and nothing of another tenant.
func TestResumesAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, stop := context.WithCancel(t.Context())
		var writing, reading sync.WaitGroup
		for n := range 3 {
			writing.Go(func() { f.churn(n) })
		}
		watchers := []*watcher{{}, {}, {}}
		for n, w := range watchers {
			w.known = map[string]string{}
			reading.Go(func() {
				random := rand.New(rand.NewPCG(uint64(n), 9))
				for ctx.Err() == nil {
					f.follow(w, time.Duration(random.IntN(2000))*time.Millisecond)
				}
			})
		}
		writing.Wait()
		stop()
		reading.Wait()
		for n, w := range watchers {
			f.follow(w, 5*time.Second)
			for _, i := range f.Instances() {
				phase := "INSTANCE_PHASE_" + strings.ToUpper(string(i.Phase))
				if got := w.known[string(i.ID)]; (got != phase) == (i.Tenant == "default") {
					t.Errorf("watcher %d knows %s of %s as %q, it is %s", n, i.ID, i.Tenant, got, phase)
				}
				delete(w.known, string(i.ID))
			}
			for id, phase := range w.known {
				if phase != "INSTANCE_PHASE_DELETED" {
					t.Errorf("watcher %d knows %s as %s, which is gone", n, id, phase)
				}
			}
		}
	})
}

// follow watches for a while, resuming the previous watch.
func (f *fixture) follow(w *watcher, d time.Duration) {
	stream := f.resumeInstances("default", all(w.place))
	w.shown = map[string]string{}
	time.Sleep(d)
	stream.stop()
	<-stream.done
	stream.mu.Lock()
	defer stream.mu.Unlock()
	w.take(stream.sent)
}

// churn creates instances, advances them step by step, and removes them and their records.
func (f *fixture) churn(writer int) {
	random := rand.New(rand.NewPCG(uint64(writer), 0))
	phases := []fleet.Phase{fleet.Pending, fleet.Running, fleet.Draining, fleet.Deleting, fleet.Deleted}
	age := map[int]int{}
	for range 1500 {
		n := writer*100 + random.IntN(10)
		i := record(n, []string{"default", "prod"}[n%2], "web", "")
		if age[n] == len(phases) {
			f.locked(func() { delete(f.instances, i.ID) })
			age[n] = 0
		} else {
			i.Phase = phases[age[n]]
			f.put(i)
			age[n]++
		}
		f.watches.Changed(i.GroupKey(), i.ID)
		time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
	}
}
