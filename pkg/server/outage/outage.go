// Package outage tells since when object storage takes no writes. A request that fails starts probes,
// one a second: once all of them have failed for 5 s there is an outage, until one succeeds. Other
// requests decide nothing: one object may be refused, and an idle server sends hardly any.
package outage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	lasting      = 5 * time.Second // for how long probes must have failed
	probeEvery   = time.Second
	probeTimeout = 3 * time.Second
)

// Outage is a time in which object storage takes no writes. The zero value means that it does.
type Outage struct {
	Since  time.Time // start of the first probe that failed
	Reason string    // what the store answers, without confidential data (object.Reason); empty: nothing
}

// Lasts reports whether there is an outage.
func (o Outage) Lasts() bool { return !o.Since.IsZero() }

// String says what happens, since when; empty if there is no outage.
func (o Outage) String() string {
	if !o.Lasts() {
		return ""
	}
	text := "no write to object storage has succeeded since " + o.Since.UTC().Format(time.RFC3339)
	if o.Reason != "" {
		text += fmt.Sprintf(" (%s)", o.Reason)
	}
	return text
}

// Watch follows the requests to object storage, and probes it. Safe for concurrent use.
type Watch struct {
	probe   func(context.Context) error
	now     func() time.Time
	suspect chan struct{} // holds one token after a failed request
	changed chan struct{} // holds one token after a change

	mu      sync.Mutex
	current Outage
}

// New returns a watch that works while Run runs. probe writes an object.
func New(probe func(context.Context) error, now func() time.Time) *Watch {
	return &Watch{probe: probe, now: now, suspect: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// Changed receives after an outage began, ended, or has another reason.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Current returns the current outage.
func (w *Watch) Current() Outage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// Begin is called at the start of a request, and what it returns at its end (object.Observed).
func (w *Watch) Begin(ctx context.Context, _ object.Verb, _ string) (ended func(error)) {
	return func(err error) {
		if err != nil && !answers(err) && !errors.Is(ctx.Err(), context.Canceled) {
			notify(w.suspect)
		}
	}
}

// answers reports whether an error is one that requests to a store that works may have.
func answers(err error) bool {
	return errors.Is(err, object.ErrNotFound) || errors.Is(err, object.ErrConflict) || errors.Is(err, object.ErrInvalidKey)
}

// Run probes the store after requests that failed, until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.suspect:
		}
		w.untilItWorks(ctx)
		if retry.Wait(ctx, lasting) != nil { // at least, until requests that fail start probes again
			return
		}
	}
}

// untilItWorks probes until a probe succeeds or ctx ends.
func (w *Watch) untilItWorks(ctx context.Context) {
	for since := w.now(); ; {
		err := w.try(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			w.become(Outage{})
			return
		}
		if w.now().Sub(since) >= lasting {
			w.become(Outage{Since: since, Reason: object.Reason(err)})
		}
		if retry.Wait(ctx, probeEvery) != nil {
			return
		}
	}
}

func (w *Watch) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return w.probe(ctx)
}

func (w *Watch) become(o Outage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.Since.Equal(w.current.Since) && o.Reason == w.current.Reason {
		return
	}
	w.current = o
	notify(w.changed)
}

// notify puts a token into a channel that may hold one already.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
