package traces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/tracing"
)

// maxOpen bounds the starts that are followed at a time.
const maxOpen = 10_000

// Starts makes the trace of each instance's start: from the first sign that the instance which it
// replaces is lost, or from the decision, until it is ready. The agent and the registration add their
// parts (package tracing).
//
// It follows instances until they are ready, during one term. The methods of a nil one do nothing.
// Safe for concurrent use.
type Starts struct {
	tracer *tracing.Tracer
	now    func() time.Time

	mu   sync.Mutex
	open map[fleet.InstanceID]*start
}

// start is what is known of one.
type start struct {
	from         time.Time
	idleSince    time.Time // the end of the last attempt; zero: there was none
	madeAt       time.Time // when the provider answered first; zero: another leader knows
	registeredAt time.Time // zero: not yet
	recorded     bool      // its record was seen
	about        []slog.Attr
}

// NewStarts returns nil if tracer is nil.
func NewStarts(tracer *tracing.Tracer, now func() time.Time) *Starts {
	if tracer == nil {
		return nil
	}
	return &Starts{tracer: tracer, now: now, open: map[fleet.InstanceID]*start{}}
}

// Record returns the record of an instance, from memory.
type Record func(fleet.InstanceID) (fleet.Instance, bool)

// Launch is one attempt to create an instance.
type Launch struct {
	Instance  fleet.Instance
	Record    Record
	Reason    string           // why it is created
	Replaces  fleet.InstanceID // the lost instance; empty: none
	Sign      string           // the first sign of the loss; empty: none
	LostAt    time.Time        // of that sign
	DecidedAt time.Time
	StartedAt time.Time // its turn came
}

// Launch begins an attempt, and returns a context for its calls and the function that ends it. With
// the first attempt the start begins.
func (s *Starts) Launch(ctx context.Context, l Launch) (context.Context, func(error)) {
	if s == nil {
		return ctx, func(error) {}
	}
	id := l.Instance.ID
	first := s.begin(l.Instance, l.Record, earliest(l.LostAt, l.DecidedAt), l.about())
	idle, ok := s.idleSince(id)
	if !ok {
		return ctx, func(error) {} // too many are followed
	}
	ctx = s.tracer.OfInstance(ctx, string(id))
	if first && !l.LostAt.IsZero() {
		s.tracer.Past(ctx, tracing.Internal, "decide", l.LostAt, l.DecidedAt, nil)
	}
	if idle.IsZero() {
		idle = l.DecidedAt
	}
	s.tracer.Past(ctx, tracing.Internal, "queue", idle, l.StartedAt, nil)
	ctx, end := s.tracer.Start(ctx, tracing.Internal, "create")
	return ctx, func(err error) {
		end(err)
		s.change(id, func(x *start) { x.idleSince = s.now() })
	}
}

func (l Launch) about() []slog.Attr {
	return []slog.Attr{
		slog.String("nstance.reason", l.Reason), slog.String("nstance.replaces", string(l.Replaces)), slog.String("nstance.sign", l.Sign),
	}
}

// Pending follows an instance, if it is pending, that was begun by others: an earlier leader, or a
// caller on demand.
func (s *Starts) Pending(id fleet.InstanceID, record Record) {
	if s == nil {
		return
	}
	if i, ok := record(id); ok && i.Phase == fleet.Pending {
		s.begin(i, record, i.CreatedAt, nil)
	}
}

// begin follows an instance, and reports whether it was not followed before. One whose record shows
// that its start is over is not: the record is read while no other call can end the start.
func (s *Starts) begin(i fleet.Instance, record Record, from time.Time, about []slog.Attr) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.open[i.ID]
	if x == nil {
		now, recorded := record(i.ID)
		if recorded && now.Phase != fleet.Pending || len(s.open) >= maxOpen {
			return false
		}
		x, first = &start{from: earliest(from, i.CreatedAt), recorded: recorded, about: []slog.Attr{
			slog.String(tracing.AttrInstance, string(i.ID)), slog.String(tracing.AttrTenant, i.Tenant), slog.String(tracing.AttrGroup, i.Group),
		}}, true
		s.open[i.ID] = x
	}
	if x.idleSince.IsZero() {
		x.about = append(x.about, about...)
	}
	return first
}

// earliest returns the earlier of two times, of which one may be unknown.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Made records that the provider has answered with a machine. Only the first answer counts.
func (s *Starts) Made(id fleet.InstanceID) {
	if s == nil {
		return
	}
	s.change(id, func(x *start) {
		if x.madeAt.IsZero() {
			x.madeAt = s.now()
		}
	})
}

// Failed records that an instance is given up before there is a record of it, and why.
func (s *Starts) Failed(id fleet.InstanceID, err error) {
	if s == nil {
		return
	}
	s.change(id, func(x *start) { s.over(id, x, err) })
}

// change changes what is known of a start, if it is followed.
func (s *Starts) change(id fleet.InstanceID, change func(*start)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.open[id]; x != nil {
		change(x)
	}
}

func (s *Starts) idleSince(id fleet.InstanceID) (at time.Time, ok bool) {
	s.change(id, func(x *start) { at, ok = x.idleSince, true })
	return at, ok
}

// over ends a start. s.mu is held.
func (s *Starts) over(id fleet.InstanceID, x *start, err error) {
	delete(s.open, id)
	s.tracer.Instance(string(id), "start instance", x.from, s.now(), err, x.about...)
}

// Follows reports whether an instance is followed.
func (s *Starts) Follows(id fleet.InstanceID) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id] != nil
}

// Changed records what has become of an instance: that it registered, that it is ready, or, with the
// reason, that it is going to be removed. A ready instance has started. The zero instance of an id is one
// whose record is gone, if it was there.
func (s *Starts) Changed(ctx context.Context, i fleet.Instance, ready bool) {
	if s == nil {
		return
	}
	s.change(i.ID, func(x *start) { s.changed(s.tracer.OfInstance(ctx, string(i.ID)), x, i, ready) })
}

func (s *Starts) changed(ctx context.Context, x *start, i fleet.Instance, ready bool) {
	if i.Phase == "" {
		if x.recorded {
			s.over(i.ID, x, errors.New("the record of the instance is gone"))
		}
		return
	}
	x.recorded = true
	if i.RegisteredAt != nil && x.registeredAt.IsZero() {
		x.registeredAt = *i.RegisteredAt
		if !x.madeAt.IsZero() {
			s.tracer.Past(ctx, tracing.Internal, "boot", x.madeAt, x.registeredAt, nil)
		}
	}
	switch {
	case i.Phase == fleet.Running && ready:
		s.tracer.Past(ctx, tracing.Internal, "become ready", x.registeredAt, s.now(), nil)
		s.over(i.ID, x, nil)
	case !i.Phase.Active():
		s.over(i.ID, x, fmt.Errorf("the instance is %s: %s", i.Phase, i.Reason))
	}
}
