package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Config is the input of New.
type Config struct {
	Logger *slog.Logger
	Now    func() time.Time
	// Sink receives the events that have a line, in order; nil: none.
	Sink Sink
}

// Sink stores events for later queries. It is called by the goroutine of the event's call,
// under a lock, and must not block.
type Sink interface{ Record(Event) }

// Log records events. It is safe for concurrent use.
type Log struct {
	cfg Config

	mu      sync.Mutex
	counts  map[Count]uint64
	leftOut uint64
	// Callers without an identity can't use up the lines of others, and refusals not those of
	// changes.
	strangers, refused, accepted *budget
}

// Count is the key that events are counted by. It has few values, whatever callers send.
type Count struct {
	Kind    Kind
	Outcome Outcome
}

// Tally is the number of events of a Count since the process started.
type Tally struct {
	Count
	Events uint64
}

// New returns a Log.
func New(cfg Config) (*Log, error) {
	if cfg.Logger == nil || cfg.Now == nil {
		return nil, errors.New("new audit log: no logger or no clock given")
	}
	return &Log{
		cfg: cfg, counts: map[Count]uint64{},
		// A refused source may write 20 lines, then one per 5 s; all together 200, then 10 per
		// second.
		strangers: newBudget(rate{perSecond: 0.2, burst: 20}, rate{perSecond: 10, burst: 200}),
		refused:   newBudget(rate{perSecond: 0.2, burst: 20}, rate{perSecond: 10, burst: 200}),
		// An identity may write 500 lines of changes, then 5 per second; all together 5,000,
		// then 200 per second, enough for a cluster that is restored from scratch.
		accepted: newBudget(rate{perSecond: 5, burst: 500}, rate{perSecond: 200, burst: 5000}),
	}, nil
}

// Record records an event. A nil Log ignores it.
func (l *Log) Record(ctx context.Context, e Event) {
	if l == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = l.cfg.Now()
	}
	e.Actor, e.From = cmp.Or(e.Actor, None), cmp.Or(e.From, "unknown")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[Count{e.Kind, e.Outcome}]++
	lines, source := l.budgetOf(e)
	leftOut, ok := lines.allow(source, l.cfg.Now(), e.durable()) // a durable change is always written, whatever came before
	if !ok {
		l.leftOut++
		return
	}
	e = e.bounded()
	l.cfg.Logger.LogAttrs(ctx, e.level(), e.message(), e.attrs(leftOut)...) //nolint:sloglint // one of a few constants
	if l.cfg.Sink != nil {
		l.cfg.Sink.Record(e)
	}
}

// budgetOf returns the budget of an event's line, and its source in it. An identity counts by
// itself, wherever it calls from: a proxy's address may be that of many.
func (l *Log) budgetOf(e Event) (lines *budget, source string) {
	source = e.Actor
	if e.Actor == None {
		source = sourceOf(e.From)
	}
	switch {
	case e.Outcome != Refused && e.Outcome != Failed:
		return l.accepted, source
	case e.Actor == None:
		return l.strangers, source
	default:
		return l.refused, source
	}
}

// Tallies returns the number of events per Count, including those without a line, sorted by
// kind and outcome.
func (l *Log) Tallies() []Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Tally, 0, len(l.counts))
	for count, n := range l.counts {
		out = append(out, Tally{count, n})
	}
	slices.SortFunc(out, func(a, b Tally) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Outcome, b.Outcome)) })
	return out
}

// LeftOut returns the number of events without a line.
func (l *Log) LeftOut() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leftOut
}
