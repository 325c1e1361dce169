package election

import "time"

// judge checks the safety properties.
type judge struct {
	epoch  uint64 // highest epoch that started an act
	holder string // the holder of that epoch
	acts   int
	terms  map[uint64]string // which process led an epoch
	calmed bool              // an act was started after faults had ended
}

// act is called when an action starts: the fence held, after the preceding write had returned.
func (j *judge) act(w *world, p *proc, epoch uint64) {
	if w.trace != nil {
		w.logf(p.name, "ACT in epoch %d", epoch)
	}
	if epoch < j.epoch {
		w.fail("%s started an act in epoch %d after %s had in epoch %d", p.name, epoch, j.holder, j.epoch)
	}
	if epoch == j.epoch && p.name != j.holder {
		w.fail("%s and %s both act in epoch %d", p.name, j.holder, epoch)
	}
	j.epoch, j.holder = epoch, p.name
	j.acts++
	j.calmed = j.calmed || w.calm
}

// command checks that an epoch is led once.
func (j *judge) command(w *world, p *proc, c command) {
	start, ok := c.(startLead)
	if !ok {
		return
	}
	if j.terms == nil {
		j.terms = map[uint64]string{}
	}
	if other, taken := j.terms[start.epoch]; taken {
		w.fail("%s leads epoch %d, which %s led before", p.name, start.epoch, other)
	}
	j.terms[start.epoch] = p.name
}

// stuck checks that no machine sleeps forever: it waits for a time, for a result, or for its
// term's work.
func (j *judge) stuck(w *world, p *proc) {
	m := p.m
	if m.wake < 0 && m.op == opNone && m.phase != stopping && m.phase != done {
		w.fail("%s is %s and waits for nothing", p.name, m.phase)
	}
}

// write checks the record: the epoch increases with each change of holder, the rev within an
// epoch, and no renewal follows a release.
func (j *judge) write(w *world, old, next Record) {
	if next.Epoch > old.Epoch {
		return
	}
	if next.Epoch < old.Epoch || next.Holder != old.Holder || next.Rev <= old.Rev || old.Released {
		w.fail("record goes from %s to %s", old.brief(), next.brief())
	}
}

// lead is a term's work: sequential actions, and some concurrent ones.
func (p *proc) lead(epoch uint64) {
	for range 1 + p.w.rng.IntN(2) {
		p.later(p.w.upTo(30*time.Millisecond), func() { p.work(epoch) })
	}
	if p.w.chance(0.05) {
		p.later(p.w.upTo(5*time.Second), func() {
			if p.m.inTerm(epoch) {
				p.w.logf(p.name, "lead returns by itself")
				p.step((*machine).leadReturned)
			}
		})
	}
}

// work calls Term.Act and pauses.
func (p *proc) work(epoch uint64) {
	w := p.w
	if !p.m.inTerm(epoch) {
		return
	}
	p.mayRetime()
	p.step(func(m *machine, now instant) { m.demand(now, m.window()/2) })
	early := p.m.fenced(p.read(), epoch)
	takes := w.upTo(60 * time.Millisecond)
	if w.chance(w.odds.slowWrite) {
		takes = w.upTo(3 * time.Second)
	}
	p.later(takes, func() {
		if w.spoil.checkBeforeWrite && early {
			w.judge.act(w, p, epoch)
			p.rest(epoch)
			return
		}
		p.check(epoch, 0, instant{})
	})
}

// check is Term.Check.
func (p *proc) check(epoch uint64, late int, before instant) {
	now := p.step(func(m *machine, now instant) { m.demand(now, 0) })
	w := p.w
	fenced := p.m.fenced(now, epoch) || (w.spoil.noFence && p.m.inTerm(epoch)) || w.spoil.fenced(p.m, now, epoch)
	switch {
	case p.dead || (!p.m.inTerm(epoch)):
	case fenced:
		w.judge.act(w, p, epoch)
		p.rest(epoch)
	case late == maxLateRenewals:
		p.rest(epoch)
	default:
		if before != (instant{}) && p.m.sent != before {
			late++
		}
		sent := p.m.sent
		p.waiters = append(p.waiters, func() { p.check(epoch, late, sent) })
	}
}

func (p *proc) rest(epoch uint64) {
	p.later(p.w.upTo(p.w.odds.idle), func() { p.work(epoch) })
}
