package traces

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/tracing"
)

// followedFor is how long after an edit the deliveries of files to a group belong to its trace.
const followedFor = 10 * time.Minute

// maxEdits bounds the edits that are remembered.
const maxEdits = 1000

// Edits remembers the last edit of each group, so that the files that instances get because of it
// are delivered in its trace. The methods of a nil one do nothing. Safe for concurrent use.
type Edits struct {
	tracer *tracing.Tracer
	now    func() time.Time

	mu   sync.Mutex
	last map[fleet.GroupKey]edit // the zero key: of every group
}

type edit struct {
	caller string // its span, as a traceparent
	at     time.Time
}

// NewEdits returns nil if tracer is nil.
func NewEdits(tracer *tracing.Tracer, now func() time.Time) *Edits {
	if tracer == nil {
		return nil
	}
	return &Edits{tracer: tracer, now: now, last: map[fleet.GroupKey]edit{}}
}

// Began remembers an edit of a group, or with the zero key of every one, before it takes effect. An
// edit that is not traced takes the place of the one before, too. The function forgets it, if it
// fails.
func (e *Edits) Began(ctx context.Context, key fleet.GroupKey) (failed func()) {
	if e == nil {
		return func() {}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	if len(e.last) >= maxEdits {
		for of, one := range e.last {
			if now.Sub(one.at) >= followedFor {
				delete(e.last, of)
			}
		}
	}
	before, known := e.last[key]
	if !known && len(e.last) >= maxEdits {
		return func() {} // it is not followed
	}
	own := edit{tracing.Text(ctx), now}
	e.last[key] = own
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.last[key] == own {
			e.last[key] = before
		}
	}
}

// Deliver begins a delivery of files to an instance. If it follows an edit of its group, it returns
// the delivery's span for the agent, and otherwise an empty text. The function ends the delivery.
func (e *Edits) Deliver(ctx context.Context, key fleet.GroupKey, id fleet.InstanceID) (traceparent string, end func(error)) {
	caller := e.of(key)
	if caller == "" {
		return "", func(error) {}
	}
	ctx, end = e.tracer.Start(tracing.Remote(ctx, caller), tracing.Internal, "deliver files", slog.String(tracing.AttrInstance, string(id)))
	return tracing.Text(ctx), end
}

// of returns the last edit of a group, if it was not long ago.
func (e *Edits) of(key fleet.GroupKey) (caller string) {
	if e == nil {
		return ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	own, all := e.last[key], e.last[fleet.GroupKey{}]
	if all.at.After(own.at) {
		own = all
	}
	if e.now().Sub(own.at) >= followedFor {
		return ""
	}
	return own.caller
}
