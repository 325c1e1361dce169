package election

import (
	"math/rand/v2"
	"time"
)

// straits makes leaders of some histories lack a need, so that they ask the others and step
// down. It has its own random source.
type straits struct {
	rng *rand.Rand
	on  bool
}

// simGiveUp is short, so that a history has room for it.
const simGiveUp = 2 * time.Second

func newStraits(seed uint64) straits {
	rng := rand.New(rand.NewPCG(seed, 0x73747261697473))
	return straits{rng: rng, on: rng.IntN(3) == 0}
}

func (s straits) upTo(d time.Duration) time.Duration { return time.Duration(s.rng.Int64N(int64(d))) }

// befall makes a process lack a need for some time.
func (w *world) befall(p *proc) {
	if !w.straits.on {
		return
	}
	w.after(w.straits.upTo(10*time.Second), func() {
		p.lacksFrom = w.now
		p.lacks = true
		w.logf(p.name, "lacks something")
		w.after(w.straits.upTo(20*time.Second), func() { p.lacks = false })
	})
}

// lack returns what the driver would pass to the machine.
func (p *proc) lack() Lack {
	if !p.lacks || p.w.calm {
		return Lack{}
	}
	return Lack{Need: NeedList, For: p.w.now - p.lacksFrom}
}

// askPeers sends a question to all listening servers.
func (p *proc) askPeers(id uint64) {
	for _, k := range p.readers {
		k.send(Line{ETag: p.notice.etag, Rev: p.notice.record.Rev, Ask: id}, nil)
	}
}

// prove answers after a while, correctly most of the time.
func (p *proc) prove(c proveReady) {
	w := p.w
	p.later(w.straits.upTo(3*time.Second), func() {
		a := Answer{Server: p.name, Leader: c.leader, Ask: c.ask, Ready: !p.lacks || w.straits.rng.IntN(5) == 0}
		to := w.hostAt(c.addr)
		if to.proc == nil || to.suspended || !w.joined(p.host, to) {
			return
		}
		asker := to.proc
		asker.later(w.straits.upTo(5*time.Millisecond), func() {
			asker.step(func(m *machine, now instant) { m.gotAnswer(now, a) })
		})
	})
}
