package renewal

import (
	"sync"
	"time"
)

// paceTimes is how many renewals anybody gets in one window: one, and some more
// for answers that were lost.
const paceTimes = 3

// pace keeps a member of the cluster from having certificates made without a
// pause. What it remembers is of members whose certificates were just judged to
// be good, and only for a window.
type pace struct {
	window time.Duration

	mu    sync.Mutex
	spent map[string]spent
	sweep int // the size at which what is over is forgotten
}

type spent struct {
	since time.Time
	times int
}

const firstSweep = 1 << 10

// newPace has windows of a minute, and shorter ones for certificates that have to
// be renewed that often.
func newPace(ttl time.Duration) *pace {
	return &pace{window: min(time.Minute, ttl/10), spent: make(map[string]spent), sweep: firstSweep}
}

func (p *pace) allows(who string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spent[who]
	if p.over(s, now) {
		s = spent{since: now}
	}
	if s.times >= paceTimes {
		return false
	}
	s.times++
	if p.spent[who] = s; len(p.spent) >= p.sweep {
		p.forget(now)
	}
	return true
}

// over reports whether a window has passed; a clock that was set back ends one.
func (p *pace) over(s spent, now time.Time) bool {
	age := now.Sub(s.since)
	return age < 0 || age >= p.window
}

func (p *pace) forget(now time.Time) {
	for who, s := range p.spent {
		if p.over(s, now) {
			delete(p.spent, who)
		}
	}
	p.sweep = max(firstSweep, 2*len(p.spent))
}
