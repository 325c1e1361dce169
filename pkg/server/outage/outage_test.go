package outage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/server/outage"
)

// disk is what probes write to.
type disk struct {
	mu     sync.Mutex
	err    error
	hangs  bool
	probes int
}

func (d *disk) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *disk) probe(ctx context.Context) error {
	d.mu.Lock()
	d.probes++
	err, hangs := d.err, d.hangs
	d.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", object.ErrUnknown, ctx.Err())
	}
	return err
}

// watch runs a watch in simulated time.
func watch(t *testing.T, test func(t *testing.T, d *disk, w *outage.Watch)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		w := outage.New(d.probe, time.Now)
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		test(t, d, w)
		end()
		<-done
	})
}

// fails ends a request with an error.
func fails(ctx context.Context, w *outage.Watch, err error) { w.Begin(ctx, object.VerbGet, "key")(err) }

var errLost = fmt.Errorf("%w: connection lost", object.ErrUnknown)

// TestOutage: an outage is told when probes have failed for five seconds, and until one succeeds.
func TestOutage(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		hangs  bool
		reason string
	}{
		"no connection": {err: errLost},
		"no answer":     {hangs: true},
		"no right":      {err: object.Refused(&object.Answer{Status: 403, Code: "AccessDenied"}), reason: "the store returned 403 AccessDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t, func(t *testing.T, d *disk, w *outage.Watch) {
				time.Sleep(time.Hour)
				d.err, d.hangs = c.err, c.hangs
				began := time.Now()
				fails(t.Context(), w, errLost)
				time.Sleep(4 * time.Second)
				if o := w.Current(); o.Lasts() || len(w.Changed()) != 0 {
					t.Errorf("after 4 s: %q", o)
				}
				time.Sleep(8 * time.Second)
				if o := w.Current(); !o.Since.Equal(began) || o.Reason != c.reason || len(w.Changed()) != 1 {
					t.Errorf("after 12 s: %q", o)
				}
				<-w.Changed()
				time.Sleep(time.Hour)
				d.mu.Lock()
				d.err, d.hangs = nil, false
				d.mu.Unlock()
				time.Sleep(5 * time.Second)
				if o := w.Current(); o.Lasts() || len(w.Changed()) != 1 {
					t.Errorf("at the end: %q", o)
				}
			})
		})
	}
}

// TestNoOutage: requests that fail while probes succeed are no outage, and cause few probes.
func TestNoOutage(t *testing.T) {
	watch(t, func(t *testing.T, d *disk, w *outage.Watch) {
		for range 6000 {
			time.Sleep(10 * time.Millisecond)
			fails(t.Context(), w, object.Refused(errors.New("one object"))) // again and again
		}
		if o := w.Current(); o.Lasts() || len(w.Changed()) > 0 || d.probes < 6 || d.probes > 13 {
			t.Errorf("%q after %d probes in a minute", o, d.probes)
		}
	})
}

// TestNoSuspicion: outcomes that say nothing against the store cause no probe.
func TestNoSuspicion(t *testing.T) {
	watch(t, func(t *testing.T, d *disk, w *outage.Watch) {
		ended, end := context.WithCancel(t.Context())
		end()
		fails(ended, w, errLost)
		for _, err := range []error{nil, object.ErrNotFound, object.ErrConflict, object.ErrInvalidKey} {
			fails(t.Context(), w, err)
		}
		time.Sleep(time.Minute)
		if d.probes != 0 {
			t.Errorf("%d probes", d.probes)
		}
	})
}

// TestOutageOfAnyStore: for a store that fails and recovers at random, an outage is never told before the
// store has taken no writes for five seconds, always after twelve, and never for longer than two after
// that. What recovers for less than two seconds may not be noticed.
func TestOutageOfAnyStore(t *testing.T) {
	for seed := range uint64(200) {
		watch(t, func(t *testing.T, d *disk, w *outage.Watch) {
			random := rand.New(rand.NewPCG(seed, 0))
			changedAt, down, noticed := time.Now(), false, true
			for range 30 {
				for until := time.Now().Add(time.Duration(random.Int64N(int64(20 * time.Second)))); time.Now().Before(until); {
					time.Sleep(100 * time.Millisecond)
					if down {
						fails(t.Context(), w, errLost)
					}
					since := time.Since(changedAt)
					switch lasts := w.Current().Lasts(); {
					case down && noticed && since < 5*time.Second && lasts:
						t.Fatalf("seed %d: told after %s", seed, since)
					case down && since > 12*time.Second && !lasts:
						t.Fatalf("seed %d: not told after %s", seed, since)
					case !down && since > 2*time.Second && lasts:
						t.Fatalf("seed %d: told for %s after the end", seed, since)
					}
				}
				noticed = down || time.Since(changedAt) > 2*time.Second
				if down = !down; down {
					d.set(errLost)
				} else {
					d.set(nil)
				}
				changedAt = time.Now()
			}
		})
	}
}

// ExampleOutage shows what is said.
func ExampleOutage() {
	since := time.Date(2026, 11, 29, 3, 12, 0, 0, time.UTC)
	fmt.Println(outage.Outage{Since: since})
	fmt.Println(outage.Outage{Since: since, Reason: "the store returned 403 AccessDenied"})
	// Output:
	// no write to object storage has succeeded since 2026-11-29T03:12:00Z
	// no write to object storage has succeeded since 2026-11-29T03:12:00Z (the store returned 403 AccessDenied)
}
