package paced

import "time"

const (
	// leastRate is the minimum rate in calls per second, so that the end of throttling is
	// noticed; firstRate is the minimum after a first refusal.
	leastRate, firstRate = 0.2, 1.0
	// A refusal lowers the rate a little if calls were accepted since the last one, as the rate
	// is about right; otherwise it is far too high.
	lowerALittle, lowerFar = 0.93, 0.5
	// Each accepted call raises the rate by this much per second, or, if none was refused for
	// steadyFor, by a larger fraction, as the provider's limit has changed.
	raiseALittle, raiseMore = 0.005, 0.1
	raisePart               = 0.1
	steadyFor               = 20 * time.Second
	// Throttling ends when no call was refused for overAfter, and none had to wait for
	// unboundFor.
	overAfter, unboundFor = time.Minute, 10 * time.Second
)

// pace is the AIMD rate limit of one kind of calls: unlimited until the provider throttles one,
// then lowered in proportion with each refusal and raised by a constant with each accepted
// call. It has no clock of its own: all times are arguments. The zero pace is unlimited.
type pace struct {
	ceiling float64 // maximum rate while throttling; 0: none

	rate      float64   // calls per second; 0: unlimited
	loweredAt time.Time // results of calls sent before are ignored
	refusedAt time.Time // the last refusal
	taken     bool      // a call sent since loweredAt was accepted
	lastAt    time.Time // time of the last call's turn
	waitedAt  time.Time // time when a call last had to wait
	sent      recent
}

// turn takes the next turn if it is due; otherwise it returns when it will be.
func (p *pace) turn(now time.Time) (at time.Time, ok bool) {
	if p.rate > 0 {
		if at = p.next(); at.After(now) {
			p.waitedAt = now
			return at, false
		}
		if p.lastAt = at; now.Sub(at) > p.interval()/4 { // unused turns don't accumulate
			p.lastAt = now
		}
	}
	p.sent.add(now)
	return now, true
}

func (p *pace) interval() time.Duration { return time.Duration(float64(time.Second) / p.rate) }

func (p *pace) next() time.Time { return p.lastAt.Add(p.interval()) }

// refused records that a call sent at the given time was throttled. It reports whether
// throttling begins.
func (p *pace) refused(sent, now time.Time) (began bool) {
	p.refusedAt = now
	if began = p.rate == 0; !began && sent.Before(p.loweredAt) {
		return false // of calls sent together only one counts
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

// accepted records that a call sent at the given time was not throttled.
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

// over returns when throttling ends if nothing more happens; zero if there is none.
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

// end ends throttling if it is over, and reports whether it did.
func (p *pace) end(now time.Time) bool {
	at := p.over()
	ended := !at.IsZero() && !at.After(now)
	if ended {
		p.rate = 0
	}
	return ended
}

// recent counts the events of about the last second.
type recent struct {
	since         time.Time // start of the current second
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

// perSecond returns the count, with the previous second weighted by its overlap.
func (r *recent) perSecond(at time.Time) float64 {
	r.roll(at)
	return float64(r.now) + float64(r.previous)*(1-at.Sub(r.since).Seconds())
}
