package election

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// simTimings are timings that holders of one record may have.
func simTimings() []Timing {
	return []Timing{
		{RenewInterval: time.Second, LeaseDuration: 4 * time.Second, FenceWindow: 900 * time.Millisecond},
		{RenewInterval: 2 * time.Second, LeaseDuration: 8 * time.Second, FenceWindow: 1900 * time.Millisecond},
		{RenewInterval: time.Second, LeaseDuration: 3 * time.Second, FenceWindow: 300 * time.Millisecond},
		{RenewInterval: 3 * time.Second, LeaseDuration: 10 * time.Second, FenceWindow: 100 * time.Millisecond},
	}
}

const (
	faultsLast   = 30 * time.Second
	leaderWithin = 40 * time.Second // of the end of faults: a longest lease, a poll, a late write and a wait
	maxDrift     = 0.03
)

func newWorld(seed uint64, spoil mutation) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 0x6e7374616e6365)), spoil: spoil}
	w.odds = w.drawOdds()
	w.tuning = rand.New(rand.NewPCG(seed, 0x74756e65))
	w.straits = newStraits(seed)
	if spoil.name != "" {
		w.straits.on = false // a broken rule is detected by known seeds
	}
	w.odds.retime = 0.5 * float64(w.tuning.IntN(3)) / 2 // none in a third of the histories
	w.store.hashes = w.rng.IntN(2) == 0
	for n := range 2 + w.rng.IntN(3) {
		h := &simHost{n: n, addr: fmt.Sprintf("host%d", n), rate: w.drift(), wallRate: w.drift(), wallJump: w.upTo(time.Hour)}
		h.older = spoil.name == "" && seed>>n%4 == 0
		w.hosts = append(w.hosts, h)
		w.after(w.upTo(2*time.Second), func() { w.launch(h) })
	}
	return w
}

func (w *world) drift() float64 { return 1 - maxDrift + 2*maxDrift*w.rng.Float64() }

// launch starts a process; its name is new, as its timing may be.
func (w *world) launch(h *simHost) {
	if h.proc != nil {
		return
	}
	w.starts++
	timings := simTimings()
	c := Config{
		Holder: fmt.Sprintf("h%d.%d", h.n, w.starts),
		Addrs:  Addrs{Election: h.addr},
		Timing: timings[w.rng.IntN(len(timings))],
		Jitter: w.upTo,
	}
	if w.straits.on {
		c.Timing.GiveUp = simGiveUp
	}
	if w.rng.IntN(8) > 0 {
		c.Peers = httpDialer{} // only whether there is one matters here
	}
	p := &proc{w: w, host: h, name: c.Holder, m: newMachine(c), conns: map[uint64]*conn{}}
	h.proc = p
	w.logf(p.name, "starts: window %s lease %s", c.Timing.FenceWindow, c.Timing.LeaseDuration)
	w.befall(p)
	p.step((*machine).start)
}

// kill ends the process at once; its kernel closes its connections unless the whole host died.
func (p *proc) kill(host bool) {
	p.w.logf(p.name, "killed, host too: %t", host)
	p.end(!host)
}

// exit ends a process that stopped cleanly.
func (p *proc) exit() {
	p.w.logf(p.name, "exits")
	p.end(true)
}

func (p *proc) end(closes bool) {
	p.dead = true
	p.host.proc = nil
	if closes {
		for _, k := range p.readers {
			k.close()
		}
	}
	for _, k := range p.conns {
		k.gone = true
	}
	p.w.after(p.w.upTo(4*time.Second), func() { p.w.launch(p.host) })
}

// stop is SIGTERM.
func (p *proc) stop() {
	p.w.logf(p.name, "told to stop")
	p.quit = true
	p.deliver(func() {
		p.w.spoil.beforeStop(p.m)
		p.step((*machine).stop)
	})
}

// freeze stops the process, or suspends its host, for d.
func (p *proc) freeze(d time.Duration, suspend bool) {
	if p.frozen || p.dead {
		return
	}
	suspend = suspend && !p.host.setBack
	p.w.logf(p.name, "frozen for %s, host suspended: %t", d, suspend)
	p.frozen = true
	p.host.suspended = suspend
	p.w.after(d, func() {
		if suspend {
			p.host.asleep += d
			p.host.suspended = false
		}
		if p.dead {
			return
		}
		p.w.logf(p.name, "thaws")
		p.frozen = false
		inbox := p.inbox
		p.inbox = nil
		for _, do := range inbox {
			p.deliver(do)
		}
	})
}

// mishap causes one fault, and schedules the next one.
func (w *world) mishap() {
	if w.calm {
		return
	}
	w.after(w.upTo(w.odds.mishaps), w.mishap)
	d := w.upTo(10 * time.Second)
	switch h := w.hosts[w.rng.IntN(len(w.hosts))]; w.rng.IntN(8) {
	case 0:
		w.logf("store", "down for %s", d)
		w.store.down = w.now + d
	case 1:
		w.logf("store", "slow for %s", d)
		w.store.slow = w.now + d
	case 2, 3, 4: // faults of the holder matter most
		if r, ok := w.holder(); ok {
			h = r
		}
		w.strike(h, d)
	default:
		w.strike(h, d)
	}
}

// strike causes a fault of one host.
func (w *world) strike(h *simHost, d time.Duration) {
	if w.calm || h.suspended { // nothing happens within a suspended host
		return
	}
	switch w.odds.weighted(w) {
	case 8: // the worst case for a successor: alive, and unaware of it
		w.logf(h.addr, "cut off from the store and refusing for %s", d)
		h.storeCut, h.refuses = w.now+d, w.now+d
		h.reset()
	case 0:
		w.logf(h.addr, "cut off from the store for %s", d)
		h.storeCut = w.now + d
	case 1:
		w.logf(h.addr, "cut off from peers for %s", d)
		h.peersCut = w.now + d
	case 2:
		w.logf(h.addr, "refuses connections for %s though it lives", d)
		h.refuses = w.now + d
		h.reset()
	case 3:
		jump := w.upTo(20*time.Second) - 10*time.Second
		// A clock set back right before a suspend hides that from every server that did not
		// read it in between: freeze handles that.
		w.logf(h.addr, "wall clock set by %s", jump)
		h.wallJump += jump
		h.setBack = h.setBack || jump < 0
	case 4:
		w.logf(h.addr, "resets its connections")
		h.reset()
	default:
		if h.proc != nil {
			w.trouble(h.proc, d)
		}
	}
}

func (w *world) trouble(p *proc, d time.Duration) {
	switch w.rng.IntN(6) {
	case 0, 1:
		p.kill(false)
	case 2:
		p.kill(true)
	case 3:
		p.stop()
	case 4:
		p.freeze(d, false)
	case 5:
		p.freeze(d, true)
	}
}

// reset breaks the connections of listeners for no reason.
func (h *simHost) reset() {
	if h.proc == nil {
		return
	}
	for _, k := range h.proc.readers {
		k.close()
	}
	h.proc.readers = nil
}

func (w *world) holder() (*simHost, bool) {
	if !w.store.present {
		return nil, false
	}
	return w.hostAt(w.store.record.Addrs.Election), true
}

// mayRetime gives a process another timing, like a change of its shard's config.
func (p *proc) mayRetime() {
	w := p.w
	if w.calm || w.tuning.Float64() >= w.odds.retime {
		return
	}
	timings := simTimings()
	t := timings[w.tuning.IntN(len(timings))]
	t.GiveUp = p.m.timing.GiveUp
	if w.trace != nil {
		w.logf(p.name, "is told: renew %s lease %s window %s", t.RenewInterval, t.LeaseDuration, t.FenceWindow)
	}
	p.step(func(m *machine, now instant) { m.retime(now, t) })
}
