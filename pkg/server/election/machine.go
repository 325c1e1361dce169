package election

import (
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// phase is where a server stands.
type phase int

const (
	following phase = iota // not ours; watching who leads
	taking                 // a write that would make it ours is under way or in doubt
	waiting                // ours; what the predecessor may start is not yet over
	leading                // ours, and the term runs
	stopping               // the term has ended, what ran in it has not returned yet
	releasing              // nothing runs any more; writing that others need not wait
	done                   // campaigning is over
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

// op is the kind of the one request to the store that may be under way.
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
	window   time.Duration // the fence window it carries
	lease    time.Duration // the lease that it carries
	released bool
}

// view is the record as last seen in the store or from its holder.
type view struct {
	record  Record
	etag    object.ETag
	present bool
	seen    instant // when this etag was first seen
}

// early is what became of the tries after a sign of death, within a lease.
type early int

const (
	earlyUnused early = iota // there was none
	earlyTried               // there was one
	earlyMet                 // it met a write of the holder's
	earlyUsedUp              // there was a second one
)

// machine decides. It does no I/O and reads no clock: its driver tells it what
// happened and when, executes the commands it asks for, and calls tick when the
// time from wake has passed. One caller at a time.
type machine struct {
	holder   string
	addrs    Addrs
	timing   Timing
	hasPeers bool
	jitter   func(time.Duration) time.Duration

	phase phase
	quit  bool // the campaign shall end
	out   []command
	wake  time.Duration // until something is due; negative: nothing is

	// The one store request under way. orphan: whoever wanted its answer is gone.
	op       op
	opID     uint64
	orphan   bool
	lastOp   instant // when the last request was sent
	failed   bool    // the last request's outcome is unknown: pace the next one
	readBack bool    // an attempt met a conflict: find out who holds the record
	nextID   uint64

	view     view
	known    bool // view is what was seen last; else the store must be asked first
	pollWait time.Duration

	holdoffFrom instant // no campaign of our own until holdoff after this
	holdoff     time.Duration
	earlyAt     instant // the first try after a sign of death within a lease
	early       early
	peer        peer

	// The record that is ours, or that we try to make ours.
	take     takePlan
	ours     bool // view is our last write known to have landed
	lastRev  uint64
	attempts []attempt
	carried  time.Duration // fence window that our writes carry
	sent     instant       // when our last write known to have landed was sent
	tried    instant       // when our last write was sent
	takenAt  instant       // when we knew that our first write had landed
	demanded bool          // someone wants to act and needs a fresh renewal
	retimed  bool          // the record does not say yet what the timing is now
	floor    uint64        // our next epoch is above this
	giveUpAt instant       // when the release began

	// What the term does without; its driver keeps lack up to date.
	lack      Lack
	giveUp    giveUp
	successor string // whom the release is for; empty: for anybody
	denied    int    // in a row: making the record was refused, and a read found none
	refused   bool   // the last write was answered with a conflict
	gaveUpTo  Plight // why this server does not lead, if it gave up the last term
	proved    bool   // this server has been asked whether it could act
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

// Durations that follow from the timing.
const (
	graceAfterClose  = 250 * time.Millisecond // for a closed connection's holder to be reached again
	redialPause      = 50 * time.Millisecond  // between dials within that grace
	safetyPoll       = 5 * time.Minute        // of the store while the holder's stream is open
	maxPoll          = 5 * time.Second        // of the store without a stream
	releaseBudget    = time.Second
	releasePause     = 50 * time.Millisecond
	maxSleepHolding  = time.Second // so that a jump of the wall clock is noticed
	maxRetryPause    = 500 * time.Millisecond
	retriesPerRenew  = 20
	attemptsPerRenew = 3
)

// withMargin is a tenth more, for clocks that run at different rates.
func withMargin(d time.Duration) time.Duration { return d + d/10 }

// attemptTimeout leaves room for several attempts in the lease that the record
// speaks of, which may be shorter than the one to come.
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

// fenced reports whether an act of the term of this epoch may start now.
func (m *machine) fenced(now instant, epoch uint64) bool {
	return m.inTerm(epoch) && now.since(m.sent) < m.window()
}

func (m *machine) inTerm(epoch uint64) bool {
	return m.phase == leading && m.view.record.Epoch == epoch
}

// demand asks for a renewal because someone is about to act. slack says how much
// of the fence window must be left for the present one to do.
func (m *machine) demand(now instant, slack time.Duration) {
	if m.phase == leading && now.since(m.sent) >= m.window()-slack {
		m.demanded = true
	}
	m.decide(now)
}

// start begins the campaign.
func (m *machine) start(now instant) { m.decide(now) }

// tick is called when the time from wake has passed; more often does no harm.
func (m *machine) tick(now instant) { m.decide(now) }

// stop ends the campaign: at once, or after a release when leading.
func (m *machine) stop(now instant) {
	m.quit = true
	switch m.phase {
	case leading:
		m.endTerm(errCampaignEnd)
	case following, taking, waiting:
		m.finish()
	default: // on the way to its end already
	}
	m.decide(now)
}

// decide asks for whatever the state calls for at this moment. A decision may lead
// to another phase, which then decides in turn: no phase is left without having
// asked for something or set the wake-up.
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
		default: // only an event goes on from here
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

// commands returns what is to be done, in order, and forgets it.
func (m *machine) commands() []command {
	out := m.out
	m.out = nil
	return out
}

func (m *machine) id() uint64 {
	m.nextID++
	return m.nextID
}

func (m *machine) begin(now instant, o op) uint64 {
	m.op, m.opID, m.orphan, m.lastOp, m.failed = o, m.id(), false, now, false
	return m.opID
}

// settled takes note of an answer and reports whether anyone still wants it.
func (m *machine) settled(o op, id uint64) bool {
	if m.op != o || m.opID != id {
		return false
	}
	m.op = opNone
	return !m.orphan
}

func (m *machine) get(now instant) {
	m.emit(getRecord{id: m.begin(now, opGet), timeout: m.attemptTimeout()})
}

// mayAsk reports whether a next request may be sent: none is under way, and the
// last one did not fail just now.
func (m *machine) mayAsk(now instant, pause time.Duration) bool {
	return m.op == opNone && (!m.failed || m.due(now, m.lastOp, pause))
}

// gotRecord is the answer to getRecord. err is nil, or wraps ErrNotFound or
// ErrUnknown, or is anything else for a record that can't be read.
func (m *machine) gotRecord(now instant, id uint64, r Record, etag object.ETag, err error) {
	if !m.settled(opGet, id) {
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
		m.takeFound(now, r, etag, err)
	case waiting, leading, stopping, releasing:
		m.holdFound(now, r, etag, err)
	default: // too late to matter
	}
	m.decide(now)
}

// putDone is the answer to putRecord.
func (m *machine) putDone(now instant, id uint64, etag object.ETag, err error) {
	if !m.settled(opPut, id) {
		m.decide(now)
		return
	}
	switch {
	case err == nil && m.phase == taking:
		m.taken(now, m.attempts[len(m.attempts)-1], etag)
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

// leader is where callers should turn to, if anyone is known to lead.
func (m *machine) leader() (Record, bool) {
	r := m.view.record
	stale := r.Holder == m.holder && m.phase != waiting && m.phase != leading
	return r, m.view.present && !r.Released && !stale
}

// leadReturned says that nothing of the term runs any more.
func (m *machine) leadReturned(now instant) {
	switch {
	case m.phase == leading: // by its own will: let another server try
		m.endTerm(errLeadOver)
		m.holdoffFrom, m.holdoff = now, m.timing.RenewInterval/2+m.jitter(m.timing.RenewInterval/2)
		m.phase, m.giveUpAt = releasing, now
	case m.phase == stopping && (m.quit || m.successor != "") && m.ours:
		if m.successor != "" {
			m.holdoffFrom, m.holdoff = now, m.timing.LeaseDuration
		}
		m.phase, m.giveUpAt = releasing, now
	case m.phase == stopping:
		m.giveUpRecord()
	}
	m.decide(now)
}
