package shardtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// History is the script that a seed generates.
type History struct {
	Servers int
	Spot    bool
	Lag     time.Duration // of the provider's reads at most; 0: they are consistent
	Cache   bool          // servers keep records in a file
	Pacing  Pacing
	Script  Script
}

// Generate draws the history of a seed, with faults and API calls, of about the given length.
// Each seed first draws which kinds of events it has, so that some seeds have few kinds often.
func Generate(seed uint64, length time.Duration) (History, error) {
	g := &generator{draw: rand.New(rand.NewPCG(seed, 0x5eed)), length: length}
	h := History{Servers: 2, Spot: g.draw.IntN(3) == 0}
	if g.draw.IntN(5) == 0 {
		h.Servers = 3
	}
	g.servers = h.Servers
	for n := range h.Servers {
		g.at(g.upTo(10*time.Second), "start %c", 'a'+n)
	}
	kinds := g.kinds()
	gap := g.gap()
	for at := g.upTo(time.Minute); at < length; at += g.upTo(2 * gap) {
		kinds[g.draw.IntN(len(kinds))](at)
	}
	g.ails(seed, length)
	g.plagues(seed, length)
	g.removals(seed, length)
	g.listings(seed, length)
	g.mistakes(seed, length)
	g.grown(seed, length)
	g.texts(seed, length)
	g.awaited(seed, length)
	h.Cache = g.caches(seed, length)
	g.steps(seed, length)
	h.Pacing = pacing(seed)
	h.Lag = lag(seed)
	script, err := ParseScript(g.text())
	h.Script = script
	return h, err
}

// lag draws how far the provider's reads lag, in a third of the seeds. In a quarter of these a
// machine may register before all reads show it. It has its own random source, so that other
// draws don't change.
func lag(seed uint64) time.Duration {
	draw := rand.New(rand.NewPCG(seed, 0x1a9))
	if draw.IntN(3) > 0 {
		return 0
	}
	short := 100*time.Millisecond + time.Duration(draw.Int64N(int64(shortestBoot-100*time.Millisecond)))
	if draw.IntN(4) == 0 {
		return short + shortestBoot
	}
	return short
}

// gap draws the mean time between two events: seconds in some seeds, and in long histories
// minutes in others.
func (g *generator) gap() time.Duration {
	gap := 10*time.Second + g.upTo(50*time.Second)
	if rare := g.length / 20; rare > time.Minute && g.draw.IntN(10) > 0 {
		gap = time.Minute + g.upTo(rare)
	}
	return gap
}

type generator struct {
	draw    *rand.Rand
	length  time.Duration
	servers int
	lines   []timed
}

// timed is a line of the script with its time.
type timed struct {
	at   time.Duration
	text string
}

func (g *generator) upTo(d time.Duration) time.Duration {
	return time.Duration(g.draw.Int64N(int64(d))).Round(time.Millisecond)
}

// mostly draws a duration that is usually short, and sometimes up to d.
func (g *generator) mostly(short, d time.Duration) time.Duration {
	if g.draw.IntN(4) > 0 {
		return time.Second + g.upTo(short)
	}
	return time.Second + g.upTo(d)
}

func (g *generator) at(at time.Duration, format string, args ...any) {
	g.lines = append(g.lines, timed{at, fmt.Sprintf(format, args...)})
}

func (g *generator) server() string {
	switch g.draw.IntN(3) {
	case 0:
		return "leader"
	default:
		return string(rune('a' + g.draw.IntN(g.servers)))
	}
}

func (g *generator) named() string { return string(rune('a' + g.draw.IntN(g.servers))) }

func (g *generator) any() string { return fmt.Sprintf("any%d", g.draw.IntN(1000)) }

func (g *generator) choose(from ...string) string { return from[g.draw.IntN(len(from))] }

// kinds draws the kinds of events of this seed: about half of all, at least one.
func (g *generator) kinds() (some []func(time.Duration)) {
	all := []func(time.Duration){
		g.crash, g.crash, g.handover, g.suspend, g.partition, g.partition, g.store, g.provider, g.provider,
		g.vm, g.vm, g.agent, g.spots, g.config, g.rebuild, g.scale, g.scale, g.group, g.onDemand, g.remove, g.ack,
	}
	for len(some) == 0 {
		for _, k := range all {
			if g.draw.IntN(2) == 0 {
				some = append(some, k)
			}
		}
	}
	return some
}

// text returns the script: the lines sorted by time, with waits between them.
func (g *generator) text() string {
	slices.SortStableFunc(g.lines, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
	var b []byte
	var now time.Duration
	for _, l := range g.lines {
		if l.at > now {
			b = fmt.Appendf(b, "wait %s\n", l.at-now)
			now = l.at
		}
		b = append(append(b, l.text...), '\n')
	}
	return string(b)
}
