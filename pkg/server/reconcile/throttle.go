package reconcile

import "time"

const (
	// leastRate is how many calls a second are sent however often they are refused,
	// so that the end of the throttling is noticed; firstRate the least that one
	// refusal alone leads to.
	leastRate, firstRate = 0.2, 1.0
	// A refusal lowers the rate a little when calls were taken since the last one: it
	// is about right. When none was, it is far too high.
	lowerALittle, lowerFar = 0.93, 0.5
	// Each call that is taken raises the rate by this much a second; by more, but no
	// more than a part of it, when none was refused for steadyFor, since what the
	// provider takes has changed.
	raiseALittle, raiseMore = 0.005, 0.1
	raisePart               = 0.1
	steadyFor               = 20 * time.Second
	// Throttling is over when no call was refused for overAfter, and none had to wait
	// for unboundFor.
	overAfter, unboundFor = time.Minute, 10 * time.Second
)

// pace decides how many calls of one kind are sent to the provider in a second:
// any number, until it refuses one for their number. From then on the rate is
// lowered in proportion with each refusal and raised by a constant with each call
// that is taken. It is told of everything that it depends on, the time included.
// The zero pace is without bound.
type pace struct {
	ceiling float64 // the rate never exceeds it; 0: there is none

	rate      float64   // calls a second; 0: they are not bound
	loweredAt time.Time // calls sent before say nothing about the rate as it is now
	refusedAt time.Time // the last refusal
	taken     bool      // a call that was sent since loweredAt was taken
	lastAt    time.Time // when the last call's turn came
	waitedAt  time.Time // when a call last had to wait
	sent      recent
}

// turn takes the next call's turn, if it has come; otherwise it returns when it
// will have.
func (p *pace) turn(now time.Time) (at time.Time, ok bool) {
	if p.rate > 0 {
		if at = p.next(); at.After(now) {
			p.waitedAt = now
			return at, false
		}
		if p.lastAt = at; now.Sub(at) > p.interval()/4 { // it was not waited for: none is saved up
			p.lastAt = now
		}
	}
	p.sent.add(now)
	return now, true
}

func (p *pace) interval() time.Duration { return time.Duration(float64(time.Second) / p.rate) }

func (p *pace) next() time.Time { return p.lastAt.Add(p.interval()) }

// refused takes over that a call sent at the given time was refused for the number
// of calls. It reports whether this is the beginning of throttling.
func (p *pace) refused(sent, now time.Time) (began bool) {
	p.refusedAt = now
	if began = p.rate == 0; !began && sent.Before(p.loweredAt) {
		return false // of those that were sent together one counts
	}
	switch {
	case began:
		p.rate = max(firstRate, p.bounded(p.sent.perSecond(now))/2)
	case p.taken:
		p.rate *= lowerALittle
	default:
		p.rate *= lowerFar
	}
	p.rate = p.bounded(max(leastRate, p.rate))
	p.loweredAt, p.lastAt, p.taken = now, now, false
	return began
}

// accepted takes over that a call sent at the given time was not refused for the
// number of calls.
func (p *pace) accepted(sent, now time.Time) {
	if p.rate == 0 || sent.Before(p.loweredAt) {
		return
	}
	p.taken = true
	more := raiseALittle
	if now.Sub(p.refusedAt) >= steadyFor {
		more = min(raiseMore, p.rate*raisePart)
	}
	p.rate = p.bounded(p.rate + more)
}

func (p *pace) bounded(rate float64) float64 {
	if p.ceiling > 0 {
		return min(rate, p.ceiling)
	}
	return rate
}

// over is when calls are not bound any more if nothing happens until then; zero:
// they are not now.
func (p *pace) over() time.Time {
	if p.rate == 0 {
		return time.Time{}
	}
	at := p.refusedAt.Add(overAfter)
	if free := p.waitedAt.Add(unboundFor); free.After(at) && (p.ceiling == 0 || p.rate < p.ceiling) {
		at = free
	}
	return at
}

// end ends the throttling if it is over, and reports whether it did.
func (p *pace) end(now time.Time) bool {
	at := p.over()
	ended := !at.IsZero() && !at.After(now)
	if ended {
		p.rate = 0
	}
	return ended
}

// recent counts what happened within about the last second.
type recent struct {
	since         time.Time // when the second began that now is counted in
	now, previous int
}

func (r *recent) add(at time.Time) {
	r.roll(at)
	r.now++
}

func (r *recent) roll(at time.Time) {
	switch passed := at.Sub(r.since); {
	case passed < time.Second:
	case passed < 2*time.Second:
		r.since, r.previous, r.now = r.since.Add(time.Second), r.now, 0
	default:
		r.since, r.previous, r.now = at, 0, 0
	}
}

// perSecond is the count, of which the second before has the part that is not over
// for a second yet.
func (r *recent) perSecond(at time.Time) float64 {
	r.roll(at)
	return float64(r.now) + float64(r.previous)*(1-at.Sub(r.since).Seconds())
}
