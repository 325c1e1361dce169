// Package roster knows which operators a leader lets in.
//
// Each operator has a record in the object storage of the cluster. One without a
// record, or with one that says it was removed, is refused. The first call of an
// operator waits until its record has been read. While it has streams open, or
// goes on calling, the record is looked at every minute, for all such operators
// together: one listing, and a read of each record that has changed. So nothing is
// read while no operator is there, and another shard's removal is noticed within
// about a minute. A removal that this leader carries out holds at once.
//
// The last verdict holds until a read says something else: a store in trouble
// does not lock out those who were let in before, and lets in nobody else. What is
// remembered ends with the term, or a day after an operator was here.
package roster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
)

const (
	// Interval is how often the records of the operators that are there are looked
	// at.
	Interval = time.Minute
	// absentFor is how long an operator without a record is refused without another
	// look, for one who keeps calling. Records come back only by hand.
	absentFor = time.Minute
	// lookTimeout bounds a read, which goes on for others when its caller leaves.
	lookTimeout = 10 * time.Second
	// recallAfter is how long a call of an operator that was let in before waits for
	// its record.
	recallAfter = 2 * time.Second
	// forgetAfter is how long an operator that is not here is remembered, for calls while
	// its record can't be read.
	forgetAfter = 24 * time.Hour
	// maxMembers bounds the memory: about two megabytes.
	maxMembers = 1 << 13
)

// Config is what a roster needs.
type Config struct {
	Store  object.Store
	Now    func() time.Time
	Logger *slog.Logger
}

// Roster is one term's. It is safe for concurrent use; Known, Join, Removed and
// Here do not wait for the store.
type Roster struct {
	cfg   Config
	looks singleflight.Group
	wake  chan struct{}

	mu      sync.Mutex
	members map[name]*member
	reads   uint64 // how many were begun
}

// name is whom a certificate names.
type name struct {
	tenant string
	id     fleet.InstanceID
}

// state is what an operator's record last said of it.
type state int

const (
	allowed state = iota
	absent
	removed // for good: no record takes it back
)

// member is what is remembered of an operator.
type member struct {
	state   state
	etag    object.ETag // of the record that says so
	read    uint64      // which read that was
	until   time.Time   // how long an absent one is refused without another look
	watched bool        // its record is looked at every Interval
	called  bool        // since the last look
	seen    time.Time   // when it last joined, called, or was removed
	streams int
	cut     chan struct{} // closed when it is to leave
}

// New returns a roster, which looks again once Keep runs.
func New(cfg Config) *Roster {
	return &Roster{cfg: cfg, wake: make(chan struct{}, 1), members: map[name]*member{}}
}

// Known is the verdict on an operator's certificate as far as memory tells: nil
// for one that is let in, or an error of kind CertificateRevoked. Not ok: its record
// has to be looked at first.
func (r *Roster) Known(caller pki.Caller) (verdict error, ok bool) {
	who, err := named(caller)
	if err != nil {
		return err, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[who]
	switch {
	case m == nil:
		return nil, false
	case m.state == removed:
		return refusal(who, removed), true
	case m.state == absent:
		return refusal(who, absent), r.cfg.Now().Before(m.until)
	default:
		m.called, m.seen = true, r.cfg.Now()
		return nil, m.watched
	}
}

// Look is the verdict on an operator's certificate, from its record unless memory
// tells: nil, or an error of kind CertificateRevoked, or one of kind Unavailable
// when the store can't be asked and the operator was not let in before.
func (r *Roster) Look(ctx context.Context, caller pki.Caller) error {
	if verdict, ok := r.Known(caller); ok {
		return verdict
	}
	who, err := named(caller)
	if err != nil {
		return err
	}
	patience := lookTimeout
	if r.remembers(who) {
		patience = recallAfter
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = r.read(within, who)
	if err == nil || errors.Is(err, rpc.CertificateRevoked) || ctx.Err() != nil {
		return err
	}
	if !r.recall(who) {
		return rpc.Unavailable.Errorf("look up operator %s: %w", who.id, err)
	}
	r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "can't read an operator's record, so what it said last holds",
		slog.String("operator", string(who.id)), slog.String("tenant", who.tenant), slog.Any("error", err))
	return nil
}

// Read is the verdict of the record as it is now: nil, or an error of kind
// CertificateRevoked, or one of kind Unavailable when the store can't be asked.
func (r *Roster) Read(ctx context.Context, caller pki.Caller) error {
	who, err := named(caller)
	if err != nil {
		return err
	}
	err = r.read(ctx, who)
	if err == nil || errors.Is(err, rpc.CertificateRevoked) || ctx.Err() != nil {
		return err
	}
	return rpc.Unavailable.Errorf("look up operator %s: %w", who.id, err)
}

// Join counts a stream of an operator that was let in. cut is closed when the
// operator is to leave, with an error of kind CertificateRevoked; so it is when
// that came between. leave is called once, at the stream's end.
func (r *Roster) Join(caller pki.Caller) (cut <-chan struct{}, leave func(), err error) {
	who, err := named(caller)
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[who]
	if m == nil {
		m = r.add(who)
	}
	if m.state != allowed {
		return nil, nil, refusal(who, m.state)
	}
	if m.cut == nil {
		m.cut = make(chan struct{})
	}
	m.streams++
	r.watch(m)
	return m.cut, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		m.streams--
	}, nil
}

// Removed refuses an operator from now on, and ends its streams. Its record says
// so already.
func (r *Roster) Removed(tenant string, id fleet.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	who := name{tenant, id}
	m := r.members[who]
	if m == nil {
		m = r.add(who)
	}
	m.state, m.seen = removed, r.cfg.Now()
	m.end()
}

// Doubt has the record of an operator read again by its next call, or if it has
// streams open when they are looked at next: a removal may or may not have been
// written.
func (r *Roster) Doubt(tenant string, id fleet.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[name{tenant, id}]; m != nil && m.state == allowed {
		m.watched = m.streams > 0
	}
}

// Here reports whether an operator has streams open, or called in the last two
// minutes.
func (r *Roster) Here(tenant string, id fleet.InstanceID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[name{tenant, id}]
	return m != nil && m.state == allowed && m.watched
}
