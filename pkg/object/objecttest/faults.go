package objecttest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
)

// Fault is the fate of a request.
type Fault int

// The faults. A read has no effect to be lost or delayed, so for Get and List all of them except
// Served and Refused mean that there is no response: ErrUnknown.
const (
	Served    Fault = iota // passed on, and its reply returned
	Dropped                // never reaches the store; ErrUnknown
	ReplyLost              // reaches the store, but its reply is lost; ErrUnknown
	Late                   // ErrUnknown now, reaches the store after Outcome.Delay
	Hung                   // never reaches the store; blocks until ctx ends
	Refused                // the store refuses it, and nothing changes: ErrRefused
)

// Outcome is a Plan's decision about a request. The latency always passes first; if ctx ends
// during it, the request never reaches the store.
type Outcome struct {
	Fault   Fault
	Latency time.Duration
	Delay   time.Duration // from the reply of a Late write to its effect
}

// Request identifies a request for a Plan.
type Request struct {
	Verb object.Verb
	Key  string // the prefix, for a List
	Nth  int    // 1 for the first request of this verb and key
}

// Plan decides the fate of a request. It is never called concurrently.
type Plan func(Request) Outcome

// ErrInjected is wrapped with object.ErrUnknown by every injected failure.
var ErrInjected = errors.New("injected fault")

// Faults is a Store that makes requests to another one fail according to a Plan. It uses only
// package time, so it works inside a synctest bubble.
type Faults struct {
	inner object.Store
	late  sync.WaitGroup

	mu   sync.Mutex
	plan Plan
	nth  map[Request]int
}

var _ object.Store = (*Faults)(nil)

// NewFaults wraps s. A nil plan serves every request.
func NewFaults(s object.Store, plan Plan) *Faults {
	f := &Faults{inner: s, nth: map[Request]int{}}
	f.Set(plan)
	return f
}

// Set replaces the plan for later requests; nil serves every request. Late writes in flight
// still land.
func (f *Faults) Set(plan Plan) {
	if plan == nil {
		plan = Always(Outcome{})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// Wait returns when every Late write has reached the store.
func (f *Faults) Wait() { f.late.Wait() }

// Always returns a plan with the same outcome for every request: Always(Outcome{Fault:
// Dropped}) is a store that is down.
func Always(o Outcome) Plan { return func(Request) Outcome { return o } }

// Script returns a plan that applies the outcomes in turn to writes (Put, Delete), and serves
// all later writes and every read.
func Script(outcomes ...Outcome) Plan {
	return func(r Request) Outcome {
		if len(outcomes) == 0 || (r.Verb != object.VerbPut && r.Verb != object.VerbDelete) {
			return Outcome{}
		}
		next := outcomes[0]
		outcomes = outcomes[1:]
		return next
	}
}

// Rates are the probabilities of a Seeded plan, each from 0 to 1 and together at most 1, and the
// maximum latency and delay, both uniformly distributed.
type Rates struct {
	Dropped, ReplyLost, Late, Hung float64
	Latency, Delay                 time.Duration
}

// Seeded returns a plan with random outcomes. They depend only on the seed and the Request,
// not on the order of goroutines, so a seed can be replayed.
func Seeded(seed uint64, rates Rates) Plan {
	return func(r Request) Outcome {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s %d %s", r.Verb, r.Nth, r.Key)
		draw := rand.New(rand.NewPCG(seed, h.Sum64()))
		o := Outcome{Latency: upTo(draw, rates.Latency), Delay: upTo(draw, rates.Delay)}
		p := draw.Float64()
		for _, f := range []struct {
			fault Fault
			rate  float64
		}{{Dropped, rates.Dropped}, {ReplyLost, rates.ReplyLost}, {Late, rates.Late}, {Hung, rates.Hung}} {
			if p < f.rate {
				o.Fault = f.fault
				break
			}
			p -= f.rate
		}
		return o
	}
}

func upTo(draw *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(draw.Int64N(int64(most) + 1))
}

// Get implements object.Store.
func (f *Faults) Get(ctx context.Context, key string) (object.Object, error) {
	if err := f.read(ctx, object.VerbGet, key); err != nil {
		return object.Object{}, err
	}
	return f.inner.Get(ctx, key)
}

// List implements object.Store.
func (f *Faults) List(ctx context.Context, prefix, token string) (object.Page, error) {
	if err := f.read(ctx, object.VerbList, prefix); err != nil {
		return object.Page{}, err
	}
	return f.inner.List(ctx, prefix, token)
}

// Put implements object.Store. Requests that the real store refuses without
// sending them (an invalid key) are refused before any fault.
func (f *Faults) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	if err := object.CheckKey(key); err != nil {
		return "", err
	}
	body = append([]byte{}, body...)
	var etag object.ETag
	err := f.write(ctx, object.VerbPut, key, func(ctx context.Context) (err error) {
		etag, err = f.inner.Put(ctx, key, body, pre)
		return err
	})
	if err != nil {
		return "", err
	}
	return etag, nil
}

// Delete implements object.Store.
func (f *Faults) Delete(ctx context.Context, key string) error {
	if err := object.CheckKey(key); err != nil {
		return err
	}
	return f.write(ctx, object.VerbDelete, key, func(ctx context.Context) error { return f.inner.Delete(ctx, key) })
}

func (f *Faults) read(ctx context.Context, verb object.Verb, key string) error {
	o, err := f.begin(ctx, verb, key)
	switch {
	case err != nil:
		return err
	case o.Fault == Served:
		return nil
	case o.Fault == Hung:
		<-ctx.Done()
		return unknown(verb, key, ctx.Err())
	case o.Fault == Refused:
		return object.Refused(denied())
	default:
		return unknown(verb, key, ErrInjected)
	}
}

func (f *Faults) write(ctx context.Context, verb object.Verb, key string, send func(context.Context) error) error {
	o, err := f.begin(ctx, verb, key)
	if err != nil {
		return err
	}
	switch o.Fault {
	case Served:
		return send(ctx)
	case ReplyLost:
		if err := send(ctx); err != nil {
			return unknown(verb, key, fmt.Errorf("%w, reply was: %s", ErrInjected, err.Error())) // the lost reply's kind must not show
		}
	case Late:
		f.late.Go(func() {
			time.Sleep(o.Delay)
			// The sender already has its result.
			_ = send(context.WithoutCancel(ctx))
		})
	case Hung:
		<-ctx.Done()
		return unknown(verb, key, ctx.Err())
	case Refused:
		return fmt.Errorf("%w: %w", object.ErrRefused, denied())
	case Dropped:
	}
	return unknown(verb, key, ErrInjected)
}

func denied() error { return &object.Answer{Bucket: "test", Status: 403, Code: "AccessDenied"} }

// begin consults the plan and waits for the latency.
func (f *Faults) begin(ctx context.Context, verb object.Verb, key string) (Outcome, error) {
	f.mu.Lock()
	id := Request{Verb: verb, Key: key}
	f.nth[id]++
	o := f.plan(Request{Verb: verb, Key: key, Nth: f.nth[id]})
	f.mu.Unlock()
	if o.Latency > 0 {
		_ = retry.Wait(ctx, o.Latency) // the end of ctx is checked below
	}
	if err := ctx.Err(); err != nil {
		return Outcome{}, unknown(verb, key, err)
	}
	return o, nil
}

func unknown(verb object.Verb, key string, cause error) error {
	return fmt.Errorf("%s %s: %w: %w", verb, key, object.ErrUnknown, cause)
}
