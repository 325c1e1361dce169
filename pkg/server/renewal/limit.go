package renewal

import (
	"sync"
	"time"
)

// maxTimes is the number of renewals per member and window: one, and a few for lost responses.
const maxTimes = 3

// limiter rate-limits the renewals of each member. It only remembers members with a valid
// certificate, and only for the last two windows with renewals.
type limiter struct {
	window time.Duration

	mu    sync.Mutex
	spent map[string]spent
	swept time.Time // when expired windows were last dropped
}

type spent struct {
	since time.Time
	times int
}

// newLimiter uses windows of a minute, or shorter ones for short-lived certificates.
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

// over reports whether a window has passed; setting the clock back also ends a window.
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
