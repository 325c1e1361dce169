package renewal

import (
	"sync"
	"time"
)

// maxTimes is how many renewals a member gets in one window: one, and some more
// for answers that were lost.
const maxTimes = 3

// limiter keeps a member of the cluster from having certificates made without a
// pause. What it remembers is of members whose certificates were just judged to
// be good, and only of the last two windows in which there were any.
type limiter struct {
	window time.Duration

	mu    sync.Mutex
	spent map[string]spent
	swept time.Time // when what is over was last forgotten
}

type spent struct {
	since time.Time
	times int
}

// newLimiter has windows of a minute, and shorter ones for certificates that have to
// be renewed that often.
func newLimiter(ttl time.Duration) *limiter {
	return &limiter{window: min(time.Minute, ttl/10), spent: make(map[string]spent)}
}

func (l *limiter) allows(member string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spent[member]
	if l.over(s, now) {
		s = spent{since: now}
	}
	if s.times >= maxTimes {
		return false
	}
	s.times++
	if l.spent[member] = s; l.over(spent{since: l.swept}, now) {
		l.forget(now)
	}
	return true
}

// over reports whether a window has passed; a clock that was set back ends one.
func (l *limiter) over(s spent, now time.Time) bool {
	age := now.Sub(s.since)
	return age < 0 || age >= l.window
}

func (l *limiter) forget(now time.Time) {
	for who, s := range l.spent {
		if l.over(s, now) {
			delete(l.spent, who)
		}
	}
	l.swept = now
}
