package election_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/election"
)

// A leader that finds a later epoch takes its own record again above it, once, while a standby
// watches, and waits like every server that takes a record.
func TestRiseAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := mem.New(mem.Config{Latency: latency}), newNetwork()
		a := startServer(t, store, n, "a", "host-a")
		defer a.close()
		term, _ := a.leads(5 * time.Second)
		b := startServer(t, store, n, "b", "host-b")
		defer b.close()
		time.Sleep(time.Minute)
		for _, low := range []uint64{0, term.Epoch(), election.MaxEpoch + 1} {
			term.RiseAbove(low)
			if err := term.Check(t.Context()); err != nil {
				t.Fatalf("epoch %d ended the term: %v", low, err)
			}
		}
		term.RiseAbove(100000)
		if err := term.Check(t.Context()); err == nil {
			t.Error("the term that was outranked may still act")
		}
		next, took := a.leads(5 * time.Second)
		if next.Epoch() != 100001 || took < 1100*time.Millisecond || took > 1500*time.Millisecond {
			t.Errorf("epoch %d after %s", next.Epoch(), took)
		}
		term.RiseAbove(200000) // of a term that is over
		time.Sleep(5 * time.Minute)
		if err := next.Check(t.Context()); err != nil || len(a.terms)+len(b.terms) != 0 {
			t.Errorf("check: %v; %d and %d more terms", err, len(a.terms), len(b.terms))
		}
	})
}

// The later epoch may be another leader's: the record shows that, and the server that found it
// follows.
func TestRiseAboveOfOneThatIsNotTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(mem.Config{Latency: latency})
		a := startServer(t, store, nil, "a", "host-a")
		defer a.close()
		term, _ := a.leads(5 * time.Second)
		body := `{"holder":"b","epoch":8,"rev":1,"addrs":{"election":"","registration":"","operator":"","agent":""},` +
			`"lease_duration":"30s","fence_window":"1s","released":false}`
		if _, err := store.Put(t.Context(), key, []byte(body), object.Precondition{}); err != nil {
			t.Fatal(err)
		}
		term.RiseAbove(8)
		time.Sleep(20 * time.Second) // less than the other's lease
		if r, ok := a.elector.Leader(); !ok || r.Holder != "b" || len(a.terms) != 0 {
			t.Errorf("leader is %+v, %v; %d more terms", r, ok, len(a.terms))
		}
		if next, _ := a.leads(time.Minute); next.Epoch() != 9 {
			t.Errorf("epoch %d after the other's lease", next.Epoch())
		}
	})
}

// A renewal in doubt that lands after the end of the term leaves the record with this server:
// the next term is still above the epoch found.
func TestRiseAboveWithARenewalInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objecttest.NewFaults(mem.New(mem.Config{Latency: latency}), nil)
		a := startServer(t, store, nil, "a", "host-a")
		defer a.close()
		term, _ := a.leads(5 * time.Second)
		for _, delay := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
			store.Set(objecttest.Script(objecttest.Outcome{Fault: objecttest.Late, Delay: delay}))
			time.Sleep(2 * time.Second) // more than the fence window
			checked, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_ = term.Check(checked) // triggers a renewal
			cancel()
			met := term.Epoch() + 1000
			term.RiseAbove(met)
			next, _ := a.leads(10 * time.Second)
			if next.Epoch() != met+1 {
				t.Errorf("renewal late by %s: epoch %d above %d", delay, next.Epoch(), met)
			}
			term = next
		}
		store.Wait()
	})
}

// lastEpoch is the maximum epoch of a record.
const lastEpoch = election.MaxEpoch + 1<<32

// A record whose epoch exceeds the maximum is unreadable, and one at the maximum has no
// successor.
func TestNoRoomForALaterEpoch(t *testing.T) {
	record := func(epoch uint64) []byte {
		return fmt.Appendf(nil, `{"holder":"b","epoch":%d,"rev":1,"addrs":{"election":"","registration":"","operator":"","agent":""},`+
			`"lease_duration":"30s","fence_window":"1s","released":true}`, epoch)
	}
	if _, err := election.ParseRecord(record(lastEpoch + 1)); err == nil || !strings.Contains(err.Error(), "epoch: 9007203549708289") {
		t.Errorf("one above the highest: %v", err)
	}
	if _, err := election.ParseRecord(record(lastEpoch)); err != nil {
		t.Errorf("the highest: %v", err)
	}
	for _, epoch := range []uint64{lastEpoch, lastEpoch + 1} {
		synctest.Test(t, func(t *testing.T) {
			store := mem.New(mem.Config{Latency: latency})
			if _, err := store.Put(t.Context(), key, record(epoch), object.Precondition{}); err != nil {
				t.Fatal(err)
			}
			a := startServer(t, store, nil, "a", "host-a")
			defer a.close()
			time.Sleep(10 * time.Minute)
			o, err := store.Get(t.Context(), key)
			if err != nil || string(o.Body) != string(record(epoch)) || len(a.terms) != 0 {
				t.Errorf("%d terms after epoch %d; the record is %s, %v", len(a.terms), epoch, o.Body, err)
			}
		})
	}
}
