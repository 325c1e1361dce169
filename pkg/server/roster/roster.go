// Package roster decides which operators a leader admits.
//
// Each operator has a record in the cluster's object storage. An operator is refused if it has
// no record, its record says that it was removed, or it has a tombstone, whatever its record
// says. A record with an invalid seal was not written by a server or administrator of the
// cluster, and counts as unreadable. The first call of an operator waits until its record has
// been read. While the operator has open streams or keeps calling, its record is checked every
// minute, with one listing for all such operators and a read of each changed record. Nothing
// is read while no operator is active, and another shard's removal takes effect within about a
// minute. A removal by this leader takes effect at once.
//
// A verdict holds until a read changes it: while the store fails, operators that were admitted
// before stay admitted, and no others are. Verdicts are kept until the term ends, or for a day
// after an operator was last active.
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
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/rpc"
)

const (
	// Interval is how often the records of active operators are checked.
	Interval = time.Minute
	// absentFor is how long an operator without a record is refused without another read.
	// Records only come back by hand.
	absentFor = time.Minute
	// lookTimeout bounds a read. A read continues for other callers when its first caller
	// leaves.
	lookTimeout = 10 * time.Second
	// recallAfter is how long a call of a previously admitted operator waits for its record.
	recallAfter = 2 * time.Second
	// forgetAfter is how long an inactive operator is remembered, for calls while its record
	// can't be read.
	forgetAfter = 24 * time.Hour
	// maxMembers bounds the memory: about two megabytes.
	maxMembers = 1 << 13
)

// Config is what a roster needs.
type Config struct {
	Store  object.Store
	Seal   record.Seal // of the records
	Now    func() time.Time
	Logger *slog.Logger
	// Found is called when an operator is admitted whose record was written without a leader, once
	// for as long as it is remembered. ctx is that of the call for which the record was read, or of
	// Run. It must not block.
	Found func(context.Context, fleet.Operator)
}

// Roster belongs to one term. It is safe for concurrent use; Known, Join, Removed and Here do
// not wait for the store.
type Roster struct {
	cfg   Config
	looks singleflight.Group
	wake  chan struct{}

	mu      sync.Mutex
	members map[name]*member
	reads   uint64 // number of the last read that was started
}

// name is the operator that a certificate names.
type name struct {
	tenant string
	id     fleet.InstanceID
}

// state is the last known state of an operator's record.
type state int

const (
	allowed state = iota
	absent
	removed // final
)

// member is the remembered state of an operator.
type member struct {
	state   state
	etag    object.ETag // of the record with this state
	read    uint64      // number of the read that returned it
	until   time.Time   // an absent operator is refused without another read until then
	watched bool        // its record is checked every Interval
	called  bool        // since the last round
	found   bool        // Found was called
	seen    time.Time   // last joined, called, or removed
	streams int
	cut     chan struct{} // closed when its streams must end
}

// New returns a roster, which rereads records while Run runs.
func New(cfg Config) *Roster {
	return &Roster{cfg: cfg, wake: make(chan struct{}, 1), members: map[name]*member{}}
}

// Known returns the verdict on an operator's certificate from memory: nil, or an error of kind
// CertificateRevoked. ok is false if the record must be read first.
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

// Verify returns the verdict on an operator's certificate, from memory or else from its
// record: nil, an error of kind CertificateRevoked, or one of kind Unavailable if the store
// can't be read and the operator was not admitted before.
func (r *Roster) Verify(ctx context.Context, caller pki.Caller) error {
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
	r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "can't read an operator record, using its last known state",
		slog.String("operator", string(who.id)), slog.String("tenant", who.tenant), slog.Any("error", err))
	return nil
}

// Read returns the verdict of the current record: nil, an error of kind CertificateRevoked, or
// one of kind Unavailable if the store can't be read.
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

// Join counts a stream of an admitted operator. cut is closed when the stream must end with an
// error of kind CertificateRevoked, which Join returns if the operator was removed meanwhile.
// leave must be called once, at the stream's end.
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

// Removed refuses an operator from now on and ends its streams. Its record must already say
// so.
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

// Doubt makes the next call of an operator read its record, or the next round if it has open
// streams: it is unknown whether a removal was written.
func (r *Roster) Doubt(tenant string, id fleet.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[name{tenant, id}]; m != nil && m.state == allowed {
		m.watched = m.streams > 0
	}
}

// Here reports whether an operator has open streams or called within the last two minutes.
func (r *Roster) Here(tenant string, id fleet.InstanceID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[name{tenant, id}]
	return m != nil && m.state == allowed && m.watched
}
