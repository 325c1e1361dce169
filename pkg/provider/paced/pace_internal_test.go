package paced

import (
	"math"
	"testing"
	"time"
)

func TestPaceAfterARefusal(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		before  pace
		sent    time.Time
		recent  int // sent within the last second
		want    float64
		began   bool
		lowered bool
	}{
		"the first: half of what was sent": {sent: ago(0), recent: 40, want: 20, began: true, lowered: true},
		"the first, of few calls":          {sent: ago(0), recent: 1, want: firstRate, began: true, lowered: true},
		"the first, beyond the ceiling":    {before: pace{ceiling: 10}, sent: ago(0), recent: 40, want: 5, began: true, lowered: true},
		"the first, with a low ceiling":    {before: pace{ceiling: 0.5}, sent: ago(0), recent: 40, want: 0.5, began: true, lowered: true},
		"after some were taken":            {before: pace{rate: 10, taken: true}, sent: ago(0), want: 10 * lowerALittle, lowered: true},
		"after none was taken":             {before: pace{rate: 10}, sent: ago(0), want: 5, lowered: true},
		"sent before it was lowered":       {before: pace{rate: 10, loweredAt: ago(time.Second)}, sent: ago(2 * time.Second), want: 10},
		"sent after it was lowered": {
			before: pace{rate: 10, loweredAt: ago(2 * time.Second)}, sent: ago(time.Second), want: 5, lowered: true,
		},
		"never less than the least":            {before: pace{rate: leastRate}, sent: ago(0), want: leastRate, lowered: true},
		"a lower ceiling takes effect at once": {before: pace{rate: 10, ceiling: 3, taken: true}, sent: ago(0), want: 3, lowered: true},
	} {
		p := c.before
		for range c.recent {
			p.sent.add(ago(100 * time.Millisecond))
		}
		began := p.refused(c.sent, now)
		if math.Abs(p.rate-c.want) > 1e-9 || began != c.began || p.loweredAt.Equal(now) != c.lowered || !p.refusedAt.Equal(now) {
			t.Errorf("%s: %+v, began %t, want a rate of %g", name, p, began, c.want)
		}
	}
}

func TestPaceAfterACallThatWasTaken(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		before pace
		sent   time.Time
		want   float64
		taken  bool
	}{
		"without bound":                   {},
		"a refusal not long ago":          {before: pace{rate: 2, refusedAt: ago(steadyFor - 1)}, sent: now, want: 2.005, taken: true},
		"no refusal for long":             {before: pace{rate: 2, refusedAt: ago(steadyFor)}, sent: now, want: 2.1, taken: true},
		"no refusal for long, a low rate": {before: pace{rate: 0.2, refusedAt: ago(steadyFor)}, sent: now, want: 0.22, taken: true},
		"up to the ceiling":               {before: pace{rate: 2, ceiling: 2.002, refusedAt: now}, sent: now, want: 2.002, taken: true},
		"sent before it was lowered":      {before: pace{rate: 2, loweredAt: now}, sent: ago(time.Second), want: 2},
	} {
		p := c.before
		if p.accepted(c.sent, now); math.Abs(p.rate-c.want) > 1e-9 || p.taken != c.taken {
			t.Errorf("%s: %+v, want a rate of %g", name, p, c.want)
		}
	}
}

func TestPaceTurns(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var p pace
	for range 100 {
		if _, ok := p.turn(now); !ok {
			t.Fatal("a call has to wait although none was refused")
		}
	}
	p.refused(now, now)
	p.rate = 2
	if at, ok := p.turn(now); ok || !at.Equal(now.Add(500*time.Millisecond)) {
		t.Errorf("right after a refusal: %t, %s", ok, at.Sub(now))
	}
	for n, at := range []time.Duration{500, 1010, 1500, 2000, 5000, 5500} { // a little late is made up for, idleness is not
		if next, ok := p.turn(now.Add(at * time.Millisecond)); !ok {
			t.Errorf("turn %d, at %d ms, comes at %s", n, at, next.Sub(now))
		}
	}
	if _, ok := p.turn(now.Add(5510 * time.Millisecond)); ok {
		t.Errorf("a turn out of turn")
	}
}

func TestPaceIsOver(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	long := 2 * overAfter
	for name, c := range map[string]struct {
		pace pace
		want bool
	}{
		"never begun":                        {},
		"refused not long ago":               {pace: pace{rate: 2, refusedAt: ago(overAfter - 1), waitedAt: ago(long)}},
		"not refused for long, none waited":  {pace: pace{rate: 2, refusedAt: ago(overAfter), waitedAt: ago(unboundFor)}, want: true},
		"not refused for long, one waited":   {pace: pace{rate: 2, refusedAt: ago(long), waitedAt: ago(unboundFor - 1)}},
		"one waited, but for the ceiling":    {pace: pace{rate: 2, ceiling: 2, refusedAt: ago(overAfter), waitedAt: now}, want: true},
		"one waited, and not at the ceiling": {pace: pace{rate: 2, ceiling: 3, refusedAt: ago(overAfter), waitedAt: now}},
	} {
		p := c.pace
		due := p.over()
		if got := p.end(now); got != c.want || got != (p.rate == 0 && c.pace.rate > 0) || c.want != (!due.IsZero() && !due.After(now)) {
			t.Errorf("%s: %t, want %t (%s)", name, got, c.want, due.Sub(now))
		}
	}
}

// TestPaceFindsTheRate: whatever the provider takes, nearly that is sent, and few
// calls are refused; and when it takes more, or all of them, that is found out.
func TestPaceFindsTheRate(t *testing.T) {
	for takes, least := range map[float64]float64{0.3: 0.75, 2: 0.9, 25: 0.9, 100: 0.9} {
		p, now := pace{}, time.Unix(1_000_000, 0)
		for range 16 {
			p.turn(now)
		}
		tokens, at := 1.0, now
		run := func(takes float64, lasts time.Duration) (taken, refused int) {
			for end := now.Add(lasts); now.Before(end) && p.rate > 0; {
				next, ok := p.turn(now)
				if !ok {
					now = next
					continue
				}
				tokens, at = min(1, tokens+now.Sub(at).Seconds()*takes), now
				if tokens >= 1 {
					tokens--
					taken++
					p.accepted(now, now)
				} else {
					refused++
					p.refused(now, now)
				}
			}
			return taken, refused
		}
		p.refused(now, now)
		run(takes, 3*time.Minute) // until it has come down, or up
		taken, refused := run(takes, 5*time.Minute)
		if share := float64(taken) / (takes * 300); share < least || refused > 30 {
			t.Errorf("%g a second: %.2f of it used, %d refused in five minutes", takes, share, refused)
		}
		run(1e6, time.Minute)
		if p.rate < 10 {
			t.Errorf("after a minute without refusal the rate is %g", p.rate)
		}
	}
}
