package shardtest

import (
	"math/rand/v2"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// The kinds of events that a seed draws from.

func (g *generator) crash(at time.Duration) {
	name := g.named()
	when := g.choose("before", "after")
	if g.draw.IntN(2) == 0 {
		g.at(at, "crash %s %s %d", g.choose(name, "leader"), when, g.draw.IntN(30))
	} else {
		g.at(at, "crash %s", g.choose(name, "leader"))
	}
	// Eventually all servers run again.
	back := at + g.mostly(20*time.Second, 3*time.Minute)
	for n := range g.servers {
		g.at(back, "start %c", 'a'+n)
	}
}

func (g *generator) handover(at time.Duration) {
	name := g.named()
	g.at(at, "stop %s", name)
	g.at(at+g.mostly(10*time.Second, time.Minute), "start %s", name)
}

func (g *generator) suspend(at time.Duration) {
	name := g.server()
	until := at + g.mostly(5*time.Second, 2*time.Minute)
	if g.draw.IntN(2) == 0 {
		g.at(at, "suspend %s before %d", name, g.draw.IntN(20))
		until += time.Minute
	} else {
		g.at(at, "suspend %s", name)
	}
	for n := range g.servers {
		g.at(until, "resume %c", 'a'+n)
	}
}

func (g *generator) partition(at time.Duration) {
	one, other := g.named(), g.choose("store", "store", "a", "b", "agents", g.any(), "operator")
	g.at(at, "cut %s %s", one, other)
	g.at(at+g.mostly(20*time.Second, 3*time.Minute), "join %s %s", one, other)
}

func (g *generator) store(at time.Duration) {
	switch g.draw.IntN(3) {
	case 0:
		g.at(at, "store down")
	case 1:
		g.at(at, "store slow %s", 100*time.Millisecond+g.upTo(4*time.Second))
	default:
		g.at(at, "store lossy %d", 1+g.draw.IntN(40))
	}
	g.at(at+g.mostly(20*time.Second, 2*time.Minute), "store fair")
}

func (g *generator) provider(at time.Duration) {
	call, n := g.choose("create", "create", "delete", "get", "list"), 1+g.draw.IntN(4)
	switch g.draw.IntN(7) {
	case 0:
		g.at(at, "provider down")
	case 1:
		g.at(at, "provider throttles")
	case 2:
		g.at(at, "provider refuses %d %s", n, call)
	case 3:
		g.at(at, "provider misses %d %s", n, call)
	case 4:
		g.at(at, "provider loses %d %s", n, call)
	case 5:
		g.at(at, "provider hangs %d %s", n, call)
	default:
		g.at(at, "provider delays %d %s %s", n, call, g.upTo(40*time.Second))
	}
	g.at(at+g.mostly(30*time.Second, 3*time.Minute), "provider fair")
}

// ails draws faults of single servers, in a third of the seeds. It has its own random
// source, so that other draws don't change.
func (g *generator) ails(seed uint64, length time.Duration) {
	own := &generator{draw: rand.New(rand.NewPCG(seed, 0xa115)), servers: g.servers}
	if own.draw.IntN(3) > 0 {
		return
	}
	for at := own.upTo(length); at < length; at += time.Minute + own.upTo(length) {
		name, until := own.server(), at+own.mostly(time.Minute, 5*time.Minute)
		switch own.draw.IntN(4) {
		case 0:
			own.at(at, "lists %s fail", name)
		case 1:
			own.at(at, "lists %s crawl %s", name, own.upTo(25*time.Second))
		default:
			own.at(at, "puts %s take %s", name, 500*time.Millisecond+own.upTo(2*time.Second))
		}
		for n := range g.servers {
			own.at(until, "lists %c fair", 'a'+n)
			own.at(until, "puts %c take 0s", 'a'+n)
		}
	}
	g.lines = append(g.lines, own.lines...)
}

func (g *generator) vm(at time.Duration) {
	for range 1 + g.draw.IntN(2) {
		g.at(at, "vm %s %s", g.choose("dies", "stops", "vanishes"), g.any())
	}
}

func (g *generator) agent(at time.Duration) {
	g.at(at, "agent %s %s %s", g.choose("dies", "restarts"), g.any(), g.mostly(10*time.Second, 5*time.Minute))
}

func (g *generator) spots(at time.Duration) {
	for range 1 + g.draw.IntN(3) {
		g.at(at, "notice %s 2m", g.any())
	}
}

func (g *generator) config(at time.Duration) {
	switch g.draw.IntN(4) {
	case 0:
		g.at(at, "config broken")
		g.at(at+g.upTo(3*time.Minute), "config mended")
	case 1:
		g.at(at, "config var %d", g.draw.IntN(9))
	case 2:
		g.at(at, "config drain %s", g.choose("0s", "5s", "30s", "1m"))
	default:
		g.at(at, "config %s %d", g.choose("web", "db"), g.draw.IntN(4))
	}
	g.at(at, "refresh")
}

func (g *generator) rebuild(at time.Duration) {
	g.at(at, "config type %s", g.choose("small", "large", "huge"))
	g.at(at, "refresh")
}

func (g *generator) scale(at time.Duration) {
	if g.draw.IntN(3) == 0 {
		g.at(at, "scale %s %d remove %s", g.choose("web", "db"), g.draw.IntN(4), g.any())
		return
	}
	g.at(at, "scale %s %d", g.choose("web", "db"), g.draw.IntN(5))
}

func (g *generator) group(at time.Duration) {
	if g.draw.IntN(2) == 0 {
		g.at(at, "ungroup %s", g.choose("batch", "cron"))
		return
	}
	g.at(at, "group %s %d", g.choose("batch", "cron"), g.draw.IntN(4))
}

func (g *generator) onDemand(at time.Duration) {
	key := g.choose("k1", "k2", "k3", "k4")
	g.at(at, "create %s %s", g.choose("web", "db"), key)
	switch g.draw.IntN(3) {
	case 0:
		g.at(at+g.upTo(time.Minute), "create %s %s", g.choose("web", "db"), key)
	case 1:
		g.at(at+g.upTo(3*time.Minute), "delete key %s", key)
	}
}

func (g *generator) remove(at time.Duration) { g.at(at, "delete %s", g.any()) }

func (g *generator) ack(at time.Duration) { g.at(at, "ack") }

// plagues draws faults of a group's creates, and slow or refused provider calls, in half of the
// seeds. It has its own random source, so that other draws don't change.
func (g *generator) plagues(seed uint64, length time.Duration) {
	own := &generator{draw: rand.New(rand.NewPCG(seed, 0x91a6e)), servers: g.servers}
	if own.draw.IntN(2) > 0 {
		return
	}
	for at := own.upTo(length / 2); at < length; at += 2*time.Minute + own.upTo(length) {
		until, group := at+own.mostly(5*time.Minute, 20*time.Minute), own.choose("web", "db", "batch")
		switch own.draw.IntN(6) {
		case 0:
			own.at(at, "machines %s die %s", group, own.mostly(20*time.Second, 3*time.Minute))
			own.at(at, "scale %s %d", group, 1+own.draw.IntN(4))
			own.at(until, "machines %s fair", group)
		case 1:
			own.at(at, "machines %s mute", group)
			own.at(at, "scale %s %d", group, 1+own.draw.IntN(4))
			own.at(until, "machines %s fair", group)
		case 2:
			own.at(at, "provider takes %d calls", 1+own.draw.IntN(20))
			own.at(until, "provider fair")
		case 3:
			own.at(at, "provider keeps machines")
			own.at(until, "provider fair")
		default:
			own.at(at, "config type %s", own.choose(rotten, unknownType))
			own.at(at, "refresh")
			own.at(until, "config type %s", own.choose("small", "large"))
			own.at(until, "refresh")
		}
	}
	g.lines = append(g.lines, own.lines...)
}

// removals draws when the config removes or renames a group, and whether that is confirmed, in
// a third of the seeds. It has its own random source, too.
func (g *generator) removals(seed uint64, length time.Duration) {
	own := &generator{draw: rand.New(rand.NewPCG(seed, 0x60e5)), servers: g.servers}
	if own.draw.IntN(3) > 0 {
		return
	}
	for at := own.upTo(length / 2); at < length; at += time.Minute + own.upTo(length/2) {
		own.at(at, "config %s %s", own.choose("without", "renames"), own.choose("web", "db"))
		switch own.draw.IntN(4) {
		case 0:
			own.at(at, "refresh")
		case 1:
			own.at(at, "refresh unconfirmed")
			own.at(at+own.upTo(time.Minute), "crash leader")
		case 2:
			own.at(at+own.upTo(time.Minute), "stop leader")
		default:
			own.at(at+own.upTo(time.Minute), "crash leader")
		}
		back := at + own.upTo(3*time.Minute)
		own.at(back, "config whole")
		own.at(back, "refresh")
		for n := range g.servers {
			own.at(back, "start %c", 'a'+n)
		}
	}
	g.lines = append(g.lines, own.lines...)
}

// pacing draws the limits of creates and rotations: in half of the seeds the default. It has
// its own random source, too.
func pacing(seed uint64) Pacing {
	draw := rand.New(rand.NewPCG(seed, 0x9ace))
	p := DefaultPacing()
	if draw.IntN(2) == 0 {
		return p
	}
	p.Settle = []time.Duration{0, 10 * time.Second, 30 * time.Second, 2 * time.Minute}[draw.IntN(4)]
	p.BackoffMax = []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute}[draw.IntN(3)]
	surges := []fleet.Surge{{Count: 1}, {Count: 2}, {Percent: 50}, {Percent: 100}}
	p.Surge, p.ShardSurge = surges[draw.IntN(4)], surges[draw.IntN(4)]
	return p
}
