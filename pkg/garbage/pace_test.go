package garbage

import (
	"testing"
	"time"
)

const mib = 1 << 20

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		what string
		rate float64 // MiB a second
		lives,
		want int
	}{
		{"nothing lives yet", 0, 0, 50},
		{"an idle server", 0.1, 6, 50},
		{"a few agents", 0.5, 20, 15},
		{"a thousand agents that are idle", 0.5, 52, 5},
		{"five thousand agents that are idle", 2, 320, 5},
		{"ten thousand that are not", 12, 640, 25},
		{"a storm of handshakes", 200, 66, 50},
		{"a storm at its beginning", 200, 6, 50},
	} {
		if have := percent(c.rate*mib, uint64(c.lives)*mib); have != c.want {
			t.Errorf("%s: %d percent of %d MiB may lie, want %d", c.what, have, c.lives, c.want)
		}
	}
}

// process is one that allocates, and is looked at.
type process struct {
	pace
	reading
}

// spend lets some time pass in which so many MiB a second are allocated, and
// returns the last order, and how often memory was to be released.
func (p *process) spend(d time.Duration, rate float64) (last order, releases int) {
	for end := p.at.Add(d); p.at.Before(end); {
		p.at = p.at.Add(every)
		p.allocated += uint64(rate * every.Seconds() * mib)
		if last = p.judge(p.reading); last.release {
			releases++
		}
	}
	return last, releases
}

func start() *process { return &process{reading: reading{at: time.Unix(0, 0), lives: 300 * mib}} }

// TestStorm: the percentage goes up with the first reading of a storm, and down
// within two seconds of its end.
func TestStorm(t *testing.T) {
	p := start()
	if o, _ := p.spend(10*time.Second, 1); o.percent != least {
		t.Fatalf("%d percent while next to nothing happens, want %d", o.percent, least)
	}
	if o, _ := p.spend(every, 300); o.percent != most {
		t.Errorf("%d percent at the beginning of a storm, want %d", o.percent, most)
	}
	p.spend(5*time.Second, 300)
	if o, _ := p.spend(2*time.Second, 1); o.percent != least {
		t.Errorf("%d percent two seconds after a storm, want %d", o.percent, least)
	}
}

// TestBurst: what takes a moment makes little room.
func TestBurst(t *testing.T) {
	p := start()
	p.spend(10*time.Second, 1)
	if o, _ := p.spend(every, 28); o.percent > 20 {
		t.Errorf("%d percent after 7 MiB at once, want at most 20", o.percent)
	}
	if o, _ := p.spend(2*time.Second, 1); o.percent != least {
		t.Errorf("%d percent two seconds later, want %d", o.percent, least)
	}
}

// TestRelease: what a storm leaves free goes back once, when the process is calm,
// and what is in proportion to the rest stays.
func TestRelease(t *testing.T) {
	p := start()
	p.free = 100 * mib
	if _, n := p.spend(time.Minute, 300); n != 0 {
		t.Errorf("memory was released %d times in a storm, want never", n)
	}
	if _, n := p.spend(10*time.Second, 1); n != 1 {
		t.Errorf("memory was released %d times after a storm, want once", n)
	}
	p.spend(10*time.Second, 300)
	if _, n := p.spend(10*time.Second, 1); n != 1 {
		t.Errorf("memory was released %d times after another storm soon after, want once", n)
	}
	p.free = 9 * mib
	if _, n := p.spend(10*time.Minute, 1); n != 0 {
		t.Errorf("memory was released %d times though little is free, want never", n)
	}
	p.free = 30 * mib
	if _, n := p.spend(10*time.Minute, 1); n < 9 || n > 10 {
		t.Errorf("memory was released %d times in ten minutes in which it was free again and again, want once a minute", n)
	}
}

// TestSteady: a percentage that would hardly change stays, because each change
// stops the process for a moment.
func TestSteady(t *testing.T) {
	p := start()
	p.spend(5*time.Second, 20)
	before := p.percent
	for n := range 100 {
		if o, _ := p.spend(every, 19+float64(n%3)); o.percent != before {
			t.Fatalf("%d percent became %d at about the same rate", before, o.percent)
		}
	}
}
