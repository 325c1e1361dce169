package election

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// world is one history: hosts with drifting clocks, processes that run machines, one store,
// and the faults between them. Time is simulated; everything is determined by the seed.
type world struct {
	rng     *rand.Rand
	tuning  *rand.Rand // for changes of the timing, so that those do not affect all else
	straits straits
	now     time.Duration // true time, invisible to processes
	queue   eventQueue
	calm    bool // faults have ended
	hosts   []*simHost
	store   simStore
	spoil   mutation
	odds    odds
	judge   judge
	trace   *strings.Builder // nil: keep no timeline
	starts  int              // of processes, to name them
	broken  error            // the first invariant that did not hold
	unsafe  bool             // it was one of safety, not of liveness
}

// odds differ between histories, so that some have single kinds of faults and others all of
// them.
type odds struct {
	lost, late, dropped float64       // of a write: its reply, its arrival in time, itself
	stall               float64       // of a process after any step, before its requests leave
	ambush              float64       // of trouble soon after a server took the record
	slowWrite           float64       // of the write before an act
	mishaps             time.Duration // at most this between two
	idle                time.Duration // at most this between two acts
	retime              float64       // of another timing before an act
	kinds               [9]int        // how likely each kind of strike is, relative to the others
}

// weighted draws a kind of strike.
func (o *odds) weighted(w *world) int {
	sum := 0
	for _, k := range o.kinds {
		sum += k
	}
	n := w.rng.IntN(sum)
	for kind, k := range o.kinds {
		if n < k {
			return kind
		}
		n -= k
	}
	return 0
}

func (w *world) drawOdds() odds {
	some := func(p float64) float64 { return p * float64(w.rng.IntN(3)) / 2 }
	o := odds{
		lost: some(0.15), late: some(0.1), dropped: some(0.05), stall: some(0.01), ambush: some(1),
		slowWrite: some(0.3), mishaps: time.Second + w.upTo(3*time.Second), idle: 50*time.Millisecond + w.upTo(600*time.Millisecond),
	}
	for kind := range o.kinds {
		o.kinds[kind] = w.rng.IntN(3)
	}
	o.kinds[5]++ // one of the faults of a process
	return o
}

// simHost is a machine with an address and clocks of its own.
type simHost struct {
	n         int
	addr      string
	rate      float64 // of the monotonic clock
	wallRate  float64
	wallJump  time.Duration // total adjustment of the wall clock
	asleep    time.Duration // time spent suspended: the monotonic clock stood still
	storeCut  time.Duration // cut off from the store until then
	peersCut  time.Duration // cut off from other hosts until then
	refuses   time.Duration // a wall in front of it refuses connections until then
	proc      *proc         // nil: nothing runs
	suspended bool
	setBack   bool // the wall clock was set back, and the process has not read it since
	older     bool // its version counts the wait from when its own write is known to have landed
}

// proc is one process. While it is frozen, all events wait.
type proc struct {
	w       *world
	host    *simHost
	name    string
	m       *machine
	time    stopwatch
	dead    bool
	frozen  bool
	inbox   []func()
	alarm   uint64 // the pending wake-up; earlier ones are void
	notice  publish
	readers []*conn          // who is told of each renewal
	conns   map[uint64]*conn // our own dials, by the machine's id
	waiters []func()         // acts that wait for a renewal
	quit    bool

	lacks     bool // it lacks a need
	lacksFrom time.Duration
}

// read reads the host's clocks.
func (p *proc) read() instant {
	h, w := p.host, p.w
	mono := time.Duration(h.rate * float64(w.now-h.asleep))
	wall := time.Duration(h.wallRate*float64(w.now)) + h.wallJump
	if w.spoil.monotonicOnly {
		wall = mono
	}
	h.setBack = false
	m := Moment{Mono: mono, Wall: time.Unix(1_000_000_000, 0).Add(wall)}
	if w.spoil.wallOnly {
		return instant{least: mono, most: wall}
	}
	return p.time.read(m)
}

func (w *world) logf(who, format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%9.4fs %-9s %s\n", w.now.Seconds(), who, fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.broken == nil {
		w.broken, w.unsafe = fmt.Errorf(format, args...), true
		w.logf("judge", "VIOLATION: %s", w.broken)
	}
}

// upTo draws uniformly from [0, d).
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

// chance is true with probability p while faults last.
func (w *world) chance(p float64) bool { return !w.calm && w.rng.Float64() < p }

func (w *world) after(d time.Duration, do func()) { w.queue.push(w.now+d, do) }

func (w *world) run(until time.Duration) {
	for w.broken == nil && len(w.queue.events) > 0 && w.queue.events[0].at <= until {
		e := w.queue.pop()
		w.now = e.at
		e.do()
	}
	if w.broken == nil {
		w.now = until
	}
}

// deliver runs do in p now, or when p thaws, or never.
func (p *proc) deliver(do func()) {
	switch {
	case p.dead:
	case p.frozen:
		p.inbox = append(p.inbox, do)
	default:
		do()
	}
}

// later runs do in p after d.
func (p *proc) later(d time.Duration, do func()) {
	p.w.after(d, func() { p.deliver(do) })
}

// step does what Elector.step does: it passes an event to the machine, executes its commands,
// wakes waiters and sets the alarm.
func (p *proc) step(happened func(m *machine, now instant)) instant {
	m, w := p.m, p.w
	was := before{m.phase, m.sent, m.view}
	now := p.read()
	m.lack = p.lack()
	if p.host.older && m.phase == taking {
		m.take.waitFrom = now
	}
	happened(m, now)
	w.spoil.apply(m, was, now)
	for _, c := range m.commands() {
		p.do(c)
	}
	if m.phase != was.phase && w.trace != nil {
		w.logf(p.name, "%s -> %s (epoch %d)", was.phase, m.phase, m.view.record.Epoch)
	}
	if m.phase != was.phase || m.sent != was.sent {
		for _, wake := range p.waiters {
			p.later(0, wake)
		}
		p.waiters = nil
	}
	p.setAlarm()
	w.judge.stuck(w, p)
	if p.took(was.phase) && w.chance(w.odds.ambush) {
		w.after(w.upTo(1200*time.Millisecond), func() { w.strike(p.host, w.upTo(5*time.Second)) })
	}
	if m.phase == done && was.phase != done {
		p.exit()
	}
	if w.chance(w.odds.stall) { // before any of the requests has been sent
		p.freeze(w.upTo(12*time.Second), w.chance(0.3))
	}
	return now
}

// took reports whether the process has just taken the record.
func (p *proc) took(was phase) bool {
	return was == taking && (p.m.phase == waiting || p.m.phase == leading)
}

func (p *proc) setAlarm() {
	p.alarm++
	if p.m.wake < 0 {
		return
	}
	alarm := p.alarm
	d := time.Duration(float64(p.m.wake)/p.host.rate) + time.Microsecond
	p.w.after(d, func() {
		if p.alarm == alarm && !p.dead { // a step in between has set another
			p.deliver(func() {
				if p.alarm == alarm {
					p.step((*machine).tick)
				}
			})
		}
	})
}

// do executes a command; results are always delayed.
func (p *proc) do(c command) {
	w := p.w
	if w.trace != nil {
		w.logf(p.name, "%s", c)
	}
	w.judge.command(w, p, c)
	switch c := c.(type) {
	case getRecord:
		p.later(w.upTo(2*time.Millisecond), func() { w.store.get(w, p, c) })
	case putRecord:
		p.later(w.upTo(2*time.Millisecond), func() { w.store.put(w, p, c) })
	case askFirstEpoch:
		p.later(w.upTo(50*time.Millisecond), func() {
			p.step(func(m *machine, now instant) { m.gotFirstEpoch(now, c.id, 1, nil) })
		})
	case dialPeer:
		p.dial(c)
	case hangUp:
		p.hangUp(c.id)
	case publish:
		p.tell(c)
	case askPeers:
		p.askPeers(c.id)
	case proveReady:
		p.prove(c)
	case startLead:
		p.lead(c.epoch)
	case stopLead:
		p.later(w.upTo(200*time.Millisecond), func() { p.step((*machine).leadReturned) })
	}
}

// event is something that happens at a true time.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// eventQueue is a binary heap, ordered by time and then by arrival.
type eventQueue struct {
	events []event
	seq    uint64
}

func (q *eventQueue) less(i, j int) bool {
	a, b := q.events[i], q.events[j]
	return a.at < b.at || (a.at == b.at && a.seq < b.seq)
}

func (q *eventQueue) push(at time.Duration, do func()) {
	q.seq++
	q.events = append(q.events, event{at: at, seq: q.seq, do: do})
	for i := len(q.events) - 1; i > 0 && q.less(i, (i-1)/2); i = (i - 1) / 2 {
		q.events[i], q.events[(i-1)/2] = q.events[(i-1)/2], q.events[i]
	}
}

func (q *eventQueue) pop() event {
	first := q.events[0]
	last := len(q.events) - 1
	q.events[0] = q.events[last]
	q.events[last] = event{}
	q.events = q.events[:last]
	for i := 0; ; {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < last && q.less(child, least) {
				least = child
			}
		}
		if least == i {
			return first
		}
		q.events[i], q.events[least] = q.events[least], q.events[i]
		i = least
	}
}

// simStore is one record with compare-and-swap, in true time.
type simStore struct {
	present bool
	record  Record
	etag    object.ETag
	down    time.Duration // until then nothing answers
	slow    time.Duration // until then everything takes long
	hashes  bool          // etags are made from the body alone
	writes  int
}

func (s *simStore) latency(w *world) time.Duration {
	if w.now < s.slow {
		return w.upTo(2500 * time.Millisecond)
	}
	return time.Millisecond + w.upTo(40*time.Millisecond)
}

func (s *simStore) get(w *world, p *proc, c getRecord) {
	answer := func(r Record, etag object.ETag, err error) {
		p.deliver(func() {
			if p.m.opID == c.id { // otherwise it has timed out
				p.step(func(m *machine, now instant) { m.gotRecord(now, c.id, r, etag, err) })
			}
		})
	}
	w.after(c.timeout, func() { answer(Record{}, "", object.ErrUnknown) })
	if !w.reachable(p.host) || w.chance(0.01) {
		return
	}
	w.after(s.latency(w), func() {
		r, etag, err := s.record, s.etag, error(nil)
		if !s.present {
			r, etag, err = Record{}, "", object.ErrNotFound
		}
		w.after(s.latency(w), func() { answer(r, etag, err) })
	})
}

func (s *simStore) put(w *world, p *proc, c putRecord) {
	answer := func(etag object.ETag, err error) {
		p.deliver(func() {
			if p.m.opID == c.id {
				if w.trace != nil {
					w.logf(p.name, "put rev %d answered: %s %v", c.record.Rev, etag, err)
				}
				p.step(func(m *machine, now instant) { m.putDone(now, c.id, etag, err) })
			}
		})
	}
	w.after(c.timeout, func() { answer("", object.ErrUnknown) })
	if !w.reachable(p.host) {
		if w.rng.IntN(2) == 0 {
			w.after(s.latency(w), func() { answer("", object.ErrUnknown) })
		}
		return
	}
	delay := s.latency(w)
	lost := w.chance(w.odds.lost)
	if w.chance(w.odds.late) { // lands long after the sender has given up
		delay, lost = w.upTo(10*time.Second), true
	}
	if w.chance(w.odds.dropped) { // never arrives
		return
	}
	w.after(delay, func() {
		etag, err := s.apply(w, c)
		if !lost {
			w.after(s.latency(w), func() { answer(etag, err) })
		}
	})
}

func (w *world) reachable(h *simHost) bool { return w.now >= w.store.down && w.now >= h.storeCut }

func (s *simStore) apply(w *world, c putRecord) (object.ETag, error) {
	holds := s.present && s.etag == c.pre.Match()
	if c.pre.Absent() {
		holds = !s.present
	}
	if !holds && !w.spoil.unconditional(c) {
		return "", object.ErrConflict
	}
	w.judge.write(w, s.record, c.record)
	s.present, s.record = true, c.record
	s.writes++
	s.etag = object.ETag("w" + strconv.Itoa(s.writes))
	if s.hashes {
		r := c.record // the rest of the body is constant within the epoch, or determined by the rev
		s.etag = object.ETag(r.Holder + strconv.FormatUint(r.Epoch<<32|r.Rev, 36) + strconv.FormatBool(r.Released))
	}
	if w.trace != nil {
		w.logf("store", "holds %s, etag %s", c.record.brief(), s.etag)
	}
	return s.etag, nil
}
