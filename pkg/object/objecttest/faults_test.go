package objecttest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

// TestFaultsServed: a plan without faults changes nothing.
func TestFaultsServed(t *testing.T) {
	objecttest.Run(t, func(*testing.T) object.Store { return objecttest.NewFaults(mem.New(mem.Config{}), nil) })
}

func TestFaults(t *testing.T) {
	const delay = time.Second
	for name, c := range map[string]struct {
		fault      objecttest.Fault
		at, after  error // of a Get right after the put returned, and after the delay
		cause      error
		answeredIn time.Duration
	}{
		"dropped":    {objecttest.Dropped, object.ErrNotFound, object.ErrNotFound, objecttest.ErrInjected, 0},
		"reply lost": {objecttest.ReplyLost, nil, nil, objecttest.ErrInjected, 0},
		"late":       {objecttest.Late, object.ErrNotFound, nil, objecttest.ErrInjected, 0},
		"hung":       {objecttest.Hung, object.ErrNotFound, object.ErrNotFound, context.DeadlineExceeded, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := mem.New(mem.Config{})
				s := objecttest.NewFaults(inner, objecttest.Script(objecttest.Outcome{Fault: c.fault, Delay: delay}))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				_, err := s.Put(ctx, "k", []byte("x"), object.IfAbsent())
				if !errors.Is(err, object.ErrUnknown) || !errors.Is(err, c.cause) {
					t.Errorf("put: %v, want unknown because of %v", err, c.cause)
				}
				if took := time.Since(start); took != c.answeredIn {
					t.Errorf("answered after %v, want %v", took, c.answeredIn)
				}
				if _, err := inner.Get(t.Context(), "k"); !errors.Is(err, c.at) {
					t.Errorf("at once: %v, want %v", err, c.at)
				}
				s.Wait()
				if _, err := s.Get(t.Context(), "k"); !errors.Is(err, c.after) {
					t.Errorf("later: %v, want %v", err, c.after)
				}
				if _, err := s.Put(t.Context(), "other", nil, object.IfAbsent()); err != nil {
					t.Errorf("put after the script's end: %v", err)
				}
			})
		})
	}
}

// TestLateWriteIsJudgedLate: a write that lands late is checked against the state at that time.
func TestLateWriteIsJudgedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := mem.New(mem.Config{})
		s := objecttest.NewFaults(inner, objecttest.Script(objecttest.Outcome{Fault: objecttest.Late, Delay: time.Second}))
		_, _ = s.Put(t.Context(), "k", []byte("late"), object.IfAbsent())
		if _, err := s.Put(t.Context(), "k", []byte("early"), object.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		s.Wait()
		if o, err := inner.Get(t.Context(), "k"); err != nil || string(o.Body) != "early" {
			t.Errorf("get = %q, %v", o.Body, err)
		}
	})
}

func TestFaultsOnReads(t *testing.T) {
	for _, fault := range []objecttest.Fault{objecttest.Dropped, objecttest.ReplyLost, objecttest.Late} {
		s := objecttest.NewFaults(mem.New(mem.Config{}), objecttest.Always(objecttest.Outcome{Fault: fault}))
		_, err := s.Get(t.Context(), "k")
		_, listErr := s.List(t.Context(), "", "")
		if !errors.Is(err, object.ErrUnknown) || !errors.Is(listErr, object.ErrUnknown) {
			t.Errorf("fault %d: get %v, list %v, want ErrUnknown", fault, err, listErr)
		}
		if errors.Is(err, object.ErrNotFound) {
			t.Errorf("fault %d: an outage looks like an absent object", fault)
		}
	}
}

// TestSeeded: a seed can be replayed, in any order of callers, and has its rates.
func TestSeeded(t *testing.T) {
	rates := objecttest.Rates{Dropped: 0.1, ReplyLost: 0.2, Late: 0.05, Hung: 0.05, Latency: time.Second, Delay: time.Minute}
	const n = 20000
	forth, back := objecttest.Seeded(7, rates), objecttest.Seeded(7, rates)
	other := objecttest.Seeded(8, rates)
	request := func(i int) objecttest.Request { return objecttest.Request{Verb: object.VerbPut, Key: "k", Nth: i} }
	drawn := map[int]objecttest.Outcome{}
	count := map[objecttest.Fault]float64{}
	for i := range n {
		drawn[i] = forth(request(i))
		count[drawn[i].Fault]++
		if drawn[i].Latency > rates.Latency || drawn[i].Delay > rates.Delay {
			t.Fatalf("%+v is over the bounds", drawn[i])
		}
	}
	same := 0
	for i := n - 1; i >= 0; i-- {
		if back(request(i)) != drawn[i] {
			t.Fatalf("request %d drew another outcome the second time", i)
		}
		if other(request(i)) == drawn[i] {
			same++
		}
	}
	if same > n/100 {
		t.Errorf("another seed drew %d of %d outcomes alike", same, n)
	}
	for fault, rate := range map[objecttest.Fault]float64{
		objecttest.Served: 0.6, objecttest.Dropped: 0.1, objecttest.ReplyLost: 0.2, objecttest.Late: 0.05, objecttest.Hung: 0.05,
	} {
		if got := count[fault] / n; got < rate-0.02 || got > rate+0.02 {
			t.Errorf("fault %d came at a rate of %.3f, want %.2f", fault, got, rate)
		}
	}
}

func TestFaultsSet(t *testing.T) {
	s := objecttest.NewFaults(mem.New(mem.Config{}), nil)
	s.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
	if err := s.Delete(t.Context(), "k"); !errors.Is(err, object.ErrUnknown) {
		t.Errorf("delete while down: %v", err)
	}
	s.Set(nil)
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Errorf("delete while up: %v", err)
	}
}
