package object_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

const seeds = 300

// TestSettleHistories: writers increment a counter through PutConfirmed on a store that drops,
// delays and half-serves requests. Each successful write is in the final state's history, no
// conflicting one is unless it was overwritten, and the counter is at least the number of
// successes.
func TestSettleHistories(t *testing.T) {
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) { settleHistory(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// settleHistory runs one history. The counter's body is "n writer", and a recording store
// keeps the history.
func settleHistory(t *testing.T, seed uint64) {
	truth := &recording{Store: mem.New(mem.Config{Latency: time.Millisecond, HashETags: seed%2 == 0})}
	if _, err := truth.Put(t.Context(), "counter", []byte("0 -"), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	store := objecttest.NewFaults(truth, objecttest.Seeded(seed, objecttest.Rates{
		Dropped: 0.15, ReplyLost: 0.15, Late: 0.15, Latency: 300 * time.Millisecond, Delay: time.Second,
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	told := map[string]answer{}
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			draw := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := range 6 {
				body, err := incrementOnce(ctx, store, fmt.Sprintf("w%d.%d", w, i))
				mu.Lock()
				told[body] = answer{err, truth.last()}
				mu.Unlock()
				time.Sleep(time.Duration(draw.IntN(100)) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	store.Wait()
	judge(t, truth.applied, told)
}

// incrementOnce returns the body it tried to write; "" if the read failed.
func incrementOnce(ctx context.Context, s object.Store, who string) (string, error) {
	for {
		o, err := s.Get(ctx, "counter")
		if err != nil {
			if ctx.Err() != nil {
				return "", err
			}
			continue
		}
		digits, _, _ := strings.Cut(string(o.Body), " ")
		n, err := strconv.Atoi(digits)
		if err != nil {
			return "", err
		}
		body := fmt.Sprintf("%d %s", n+1, who)
		_, err = object.PutConfirmed(ctx, s, "counter", []byte(body), object.IfMatch(o.ETag))
		return body, err
	}
}

func judge(t *testing.T, applied []string, told map[string]answer) {
	times := map[string]int{}
	for i, body := range applied {
		times[body]++
		if digits, _, _ := strings.Cut(body, " "); digits != strconv.Itoa(i) {
			t.Errorf("write %d is %q: an update was lost", i, body)
		}
	}
	for body, a := range told {
		err := a.err
		switch {
		case err == nil && times[body] != 1:
			t.Errorf("%q was answered with success and applied %d times", body, times[body])
		case errors.Is(err, object.ErrConflict) && (a.current == body || applied[len(applied)-1] == body):
			t.Errorf("%q was answered with a conflict, and was there", body)
		case err != nil && !errors.Is(err, object.ErrConflict) && !errors.Is(err, object.ErrUnknown):
			t.Errorf("%q: %v", body, err)
		}
	}
}

// answer is a writer's result, with the stored body at that time.
type answer struct {
	err     error
	current string
}

// recording records the applied writes, in order.
type recording struct {
	object.Store
	mu      sync.Mutex
	applied []string
}

func (r *recording) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	etag, err := r.Store.Put(ctx, key, body, pre)
	if err == nil {
		r.mu.Lock()
		r.applied = append(r.applied, string(body))
		r.mu.Unlock()
	}
	return etag, err
}

func (r *recording) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.applied) == 0 {
		return ""
	}
	return r.applied[len(r.applied)-1]
}

// TestSettleWaitsOutAnOutage: PutConfirmed finishes when the store is back, and backs off
// meanwhile.
func TestSettleWaitsOutAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := mem.New(mem.Config{})
		faults := objecttest.NewFaults(inner, objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped}))
		store := objecttest.NewCounting(faults)
		time.AfterFunc(20*time.Second, func() { faults.Set(nil) })
		start := time.Now()
		etag, err := object.PutConfirmed(t.Context(), store, "k", []byte("mine"), object.IfAbsent())
		if err != nil {
			t.Fatal(err)
		}
		if o, err := inner.Get(t.Context(), "k"); err != nil || o.ETag != etag {
			t.Errorf("get = %q, %v, want etag %q", o.ETag, err, etag)
		}
		if took := time.Since(start); took > 22*time.Second+time.Millisecond {
			t.Errorf("settled %v after an outage of 20s, want within the longest pause", took)
		}
		if n := store.Counts().Total(); n > 20 {
			t.Errorf("%d requests during an outage of 20s", n)
		}
	})
}

// TestSettleEndsWithItsContext: a hung request does not outlive ctx.
func TestSettleEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objecttest.NewFaults(mem.New(mem.Config{}), objecttest.Always(objecttest.Outcome{Fault: objecttest.Hung}))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		_, err := object.PutConfirmed(ctx, store, "k", []byte("mine"), object.IfAbsent())
		if !errors.Is(err, object.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want unknown and deadline exceeded", err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("took %v, want 5s", took)
		}
	})
}

// TestSettleInvalidKey: a write that was never sent is not retried.
func TestSettleInvalidKey(t *testing.T) {
	store := objecttest.NewCounting(mem.New(mem.Config{}))
	_, err := object.PutConfirmed(t.Context(), store, "a//b", []byte("x"), object.IfAbsent())
	if !errors.Is(err, object.ErrInvalidKey) || store.Counts().Total() != 1 {
		t.Errorf("error %v after %d requests, want one refusal", err, store.Counts().Total())
	}
}

// TestSettleEndsOnRefusal: a definite refusal ends PutConfirmed at once, and one after a lost
// reply does not hide that the write may have landed.
func TestSettleEndsOnRefusal(t *testing.T) {
	refusal := fmt.Errorf("%w: %w", object.ErrRefused, &object.Answer{Bucket: "b", Status: 403, Code: "AccessDenied"})
	lost := fmt.Errorf("%w: lost", object.ErrUnknown)
	for name, c := range map[string]struct {
		puts    []error
		get     error
		unknown bool
	}{
		"first write":        {puts: []error{refusal}, unknown: false},
		"write after a lost": {puts: []error{lost, refusal}, unknown: true},
		"read after a lost":  {puts: []error{lost}, get: fmt.Errorf("%w: %w", object.ErrUnknown, refusal), unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{Store: mem.New(mem.Config{}), puts: c.puts, get: c.get}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				_, err := object.PutConfirmed(ctx, s, "k", []byte("mine"), object.IfAbsent())
				refused := errors.Is(err, object.ErrRefused) && strings.Contains(err.Error(), "AccessDenied")
				if !refused || errors.Is(err, object.ErrUnknown) != c.unknown {
					t.Errorf("settle: %v, want ErrRefused, unknown: %t", err, c.unknown)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("settle took %s", took)
				}
			})
		})
	}
}

// scripted returns the errors in puts to writes, in turn, and get to reads.
type scripted struct {
	object.Store
	puts []error
	get  error
}

func (s *scripted) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	if len(s.puts) == 0 {
		return s.Store.Put(ctx, key, body, pre)
	}
	err := s.puts[0]
	s.puts = s.puts[1:]
	return "", err
}

func (s *scripted) Get(ctx context.Context, key string) (object.Object, error) {
	if s.get != nil {
		return object.Object{}, s.get
	}
	return s.Store.Get(ctx, key)
}
