package election

import (
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// phase is the state of a server in the election.
type phase int

const (
	following phase = iota // the record is not ours; watching it
	taking                 // a write that would make it ours is in flight or in doubt
	waiting                // ours; waiting until the predecessor's actions are over
	leading                // ours, and the term runs
	stopping               // the term has ended, its work has not returned yet
	releasing              // nothing runs; writing the release
	done                   // the campaign is over
)

func (p phase) String() string {
	return [...]string{"following", "taking", "waiting", "leading", "stopping", "releasing", "done"}[p]
}

// Why a term ends, as the cause of its context.
var (
	errLeaseOver   = errors.New("lease ended without a successful renewal")
	errSuperseded  = errors.New("another server took the election record")
	errRecordGone  = errors.New("the election record is gone or unreadable")
	errCampaignEnd = errors.New("campaign ended")
	errLeadOver    = errors.New("lead returned")
)

// op is the kind of the one store request that may be in flight.
type op int

const (
	opNone op = iota
	opGet
	opPut
	opFirstEpoch
)

// attempt is a write that may have landed or may still land.
type attempt struct {
	rev      uint64
	sent     instant
	window   time.Duration // its fence window
	lease    time.Duration // its lease
	released bool
}

// view is the record as last seen in the store or from its holder.
type view struct {
	record  Record
	etag    object.ETag
	present bool
	seen    instant // when this etag was first seen
}

// early counts the tries after a sign of death, within a lease.
type early int

const (
	earlyUnused early = iota // none
	earlyTried               // one
	earlyMet                 // one, which met a write of the holder
	earlyUsedUp              // two
)

// machine decides. It does no I/O and reads no clock: its driver passes events and times,
// executes its commands, and calls tick when wake has passed. Not safe for concurrent use.
type machine struct {
	holder   string
	addrs    Addrs
	timing   Timing
	hasPeers bool
	jitter   func(time.Duration) time.Duration

	phase phase
	quit  bool // the campaign has to end
	out   []command
	wake  time.Duration // time until something is due; negative: nothing is

	// The one store request in flight. orphan: its result is ignored.
	op       op
	opID     uint64
	orphan   bool
	lastOp   instant // when the last request was sent
	failed   bool    // the last request's outcome is unknown: pace the next one
	readBack bool    // an attempt met a conflict: find out which server holds the record
	nextID   uint64

	view     view
	known    bool // view is current; otherwise the store must be read first
	pollWait time.Duration

	holdoffFrom instant // no campaign until holdoff after this
	holdoff     time.Duration
	earlyAt     instant // the first try after a sign of death within a lease
	early       early
	peer        peer

	// The record that is ours or being taken.
	take          takePlan
	ours          bool // view is our last write known to have landed
	lastRev       uint64
	attempts      []attempt
	carried       time.Duration // fence window in our writes
	sent          instant       // when our last write known to have landed was sent
	tried         instant       // when our last write was sent
	demanded      bool          // a caller wants to act and needs a fresh renewal
	retimed       bool          // the record does not have the current timing yet
	floor         uint64        // our next epoch must exceed this
	steppedDownAt instant       // start of the release

	// The unmet need of the term; the driver updates lack.
	lack      Lack
	stepDown  stepDown
	successor string  // the server that the release is for; empty: any
	denied    int     // writes in a row that were refused although no record exists
	refused   bool    // the last write met a conflict
	gaveUpTo  Blocked // why this server gave up its last term
	proved    bool    // this server was asked whether it could act
	provedAt  instant
}

func newMachine(c Config) *machine {
	jitter := c.Jitter
	if jitter == nil {
		jitter = func(time.Duration) time.Duration { return 0 }
	}
	return &machine{
		holder: c.Holder, addrs: c.Addrs, timing: c.Timing,
		hasPeers: c.Peers != nil, jitter: jitter, wake: -1,
	}
}

// Durations, some of them derived from the timing.
const (
	graceAfterClose  = 250 * time.Millisecond // to reach the holder of a closed connection again
	redialPause      = 50 * time.Millisecond  // between dials within that grace
	safetyPoll       = 5 * time.Minute        // of the store while the holder's stream is open
	maxPoll          = 5 * time.Second        // without a stream
	releaseBudget    = time.Second
	releasePause     = 50 * time.Millisecond
	maxSleepHolding  = time.Second // so that jumps of the wall clock are noticed
	maxRetryPause    = 500 * time.Millisecond
	retriesPerRenew  = 20
	attemptsPerRenew = 3
)

// withMargin adds a tenth, for clocks that run at different rates.
func withMargin(d time.Duration) time.Duration { return d + d/10 }

// attemptTimeout leaves time for several attempts within the lease of the record, which may be
// shorter than the next one.
func (m *machine) attemptTimeout() time.Duration {
	timeout := m.timing.RenewInterval / attemptsPerRenew
	if m.ours {
		timeout = min(timeout, m.view.record.LeaseDuration/(2*attemptsPerRenew))
	}
	return timeout
}

func (m *machine) retryPause() time.Duration {
	return min(m.timing.RenewInterval/retriesPerRenew, maxRetryPause)
}

// fenced reports whether an action of the term may start now.
func (m *machine) fenced(now instant, epoch uint64) bool {
	return m.inTerm(epoch) && now.since(m.sent) < m.window()
}

func (m *machine) inTerm(epoch uint64) bool {
	return m.phase == leading && m.view.record.Epoch == epoch
}

// demand requests a renewal because a caller is about to act, unless more than slack is left
// of the fence window.
func (m *machine) demand(now instant, slack time.Duration) {
	if m.phase == leading && now.since(m.sent) >= m.window()-slack {
		m.demanded = true
	}
	m.decide(now)
}

// start starts the campaign.
func (m *machine) start(now instant) { m.decide(now) }

// tick is called when wake has passed; extra calls are harmless.
func (m *machine) tick(now instant) { m.decide(now) }

// stop ends the campaign: at once, or after a release when leading.
func (m *machine) stop(now instant) {
	m.quit = true
	switch m.phase {
	case leading:
		m.endTerm(errCampaignEnd)
	case following, taking, waiting:
		m.finish()
	default: // already ending
	}
	m.decide(now)
}

// decide emits the commands that the state requires. A decision may change the phase, which then
// decides in turn: each phase emits a command or sets the wake-up.
func (m *machine) decide(now instant) {
	for {
		before := m.phase
		m.wake = -1
		switch m.phase {
		case following:
			m.follow(now)
		case taking:
			m.pursue(now)
		case waiting, leading:
			if !m.expire(now) {
				m.hold(now)
			}
		case releasing:
			m.release(now)
		default: // waiting for an event
		}
		if m.phase == before {
			return
		}
	}
}

// due reports whether d has passed since from; if not, it sets the wake-up.
func (m *machine) due(now, from instant, d time.Duration) bool {
	return m.passed(now.since(from), d)
}

func (m *machine) passed(elapsed, d time.Duration) bool {
	if elapsed >= d {
		return true
	}
	m.wakeIn(d - elapsed)
	return false
}

func (m *machine) wakeIn(d time.Duration) {
	if m.wake < 0 || d < m.wake {
		m.wake = d
	}
}

func (m *machine) emit(c command) { m.out = append(m.out, c) }

// commands returns the pending commands, in order, and clears them.
func (m *machine) commands() []command {
	out := m.out
	m.out = nil
	return out
}

func (m *machine) id() uint64 {
	m.nextID++
	return m.nextID
}

func (m *machine) startOp(now instant, o op) uint64 {
	m.op, m.opID, m.orphan, m.lastOp, m.failed = o, m.id(), false, now, false
	return m.opID
}

// finishOp records a result and reports whether it is still wanted.
func (m *machine) finishOp(o op, id uint64) bool {
	if m.op != o || m.opID != id {
		return false
	}
	m.op = opNone
	return !m.orphan
}

func (m *machine) get(now instant) {
	m.emit(getRecord{id: m.startOp(now, opGet), timeout: m.attemptTimeout()})
}

// mayAsk reports whether the next request may be sent: none is in flight, and the last one did
// not just fail.
func (m *machine) mayAsk(now instant, pause time.Duration) bool {
	return m.op == opNone && (!m.failed || m.due(now, m.lastOp, pause))
}

// gotRecord is the result of getRecord. err is nil, wraps ErrNotFound or ErrUnknown, or is any
// other error for a record that can't be read.
func (m *machine) gotRecord(now instant, id uint64, r Record, etag object.ETag, err error) {
	if !m.finishOp(opGet, id) {
		m.decide(now)
		return
	}
	if err != nil && errors.Is(err, object.ErrUnknown) {
		m.failed = true
		m.decide(now)
		return
	}
	switch m.phase {
	case following:
		m.see(now, r, etag, err)
	case taking:
		m.resolveTake(now, r, etag, err)
	case waiting, leading, stopping, releasing:
		m.holdFound(now, r, etag, err)
	default: // too late
	}
	m.decide(now)
}

// putDone is the result of putRecord.
func (m *machine) putDone(now instant, id uint64, etag object.ETag, err error) {
	if !m.finishOp(opPut, id) {
		m.decide(now)
		return
	}
	switch {
	case err == nil && m.phase == taking:
		m.acquired(now, m.attempts[len(m.attempts)-1], etag)
	case err == nil:
		m.landed(now, m.attempts[len(m.attempts)-1], etag)
	case errors.Is(err, object.ErrConflict):
		m.readBack, m.refused = true, true
	default:
		m.failed = true
		m.readBack = m.phase == taking
	}
	m.decide(now)
}

// leader returns the record of the leader, if one is known.
func (m *machine) leader() (Record, bool) {
	r := m.view.record
	stale := r.Holder == m.holder && m.phase != waiting && m.phase != leading
	return r, m.view.present && !r.Released && !stale
}

// leadReturned reports that all work of the term has ended.
func (m *machine) leadReturned(now instant) {
	switch {
	case m.phase == leading: // voluntarily: let another server try
		m.endTerm(errLeadOver)
		m.holdoffFrom, m.holdoff = now, m.timing.RenewInterval/2+m.jitter(m.timing.RenewInterval/2)
		m.phase, m.steppedDownAt = releasing, now
	case m.phase == stopping && (m.quit || m.successor != "") && m.ours:
		if m.successor != "" {
			m.holdoffFrom, m.holdoff = now, m.timing.LeaseDuration
		}
		m.phase, m.steppedDownAt = releasing, now
	case m.phase == stopping:
		m.abandonRecord()
	}
	m.decide(now)
}
