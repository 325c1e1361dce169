package shardtest

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// The kinds of events that some seeds have about objects that are changed manually, and configs that
// take groups away. Each has its own random source, so that other draws don't change.

// texts draws manual changes of config/ and applied/, in a third of the seeds, usually with a
// change of leaders before they are restored, if they are.
func (g *generator) texts(seed uint64, length time.Duration) {
	own := &generator{draw: rand.New(rand.NewPCG(seed, 0x7e475)), servers: g.servers}
	if own.draw.IntN(3) > 0 {
		return
	}
	for at := own.upTo(length / 2); at < length; at += time.Minute + own.upTo(length/2) {
		if own.draw.IntN(2) == 0 {
			before := at - own.upTo(2*time.Minute)
			own.at(before, "config %s %d", own.choose("web", "db"), 1+own.draw.IntN(4))
			own.at(before, "refresh")
		}
		object := own.choose("config", "applied", "applied")
		own.at(at, "text %s %s", object, own.choose("lost", fmt.Sprintf("old %d", 1+own.draw.IntN(4))))
		if own.draw.IntN(2) == 0 {
			own.at(at, "config %s %d", own.choose("web", "db"), own.draw.IntN(3))
		}
		until := at + own.mostly(time.Minute, 5*time.Minute)
		if own.draw.IntN(4) > 0 {
			own.at(at+own.upTo(until-at), "%s leader", own.choose("stop", "crash"))
		}
		if own.draw.IntN(2) == 0 {
			own.at(until, "%s", own.choose("text applied back", "config whole"))
		}
		for n := range g.servers {
			own.at(until, "start %c", 'a'+n)
		}
	}
	g.lines = append(g.lines, own.lines...)
}

// grown draws that a group grows, and that its record is replaced by a version from before, or
// removed, when its new instances run, in a third of the seeds. Mostly the leader changes then.
func (g *generator) grown(seed uint64, length time.Duration) {
	own := &generator{draw: rand.New(rand.NewPCG(seed, 0x62077)), servers: g.servers}
	if own.draw.IntN(3) > 0 {
		return
	}
	for at := own.upTo(length / 2); at < length; at += 3*time.Minute + own.upTo(length/2) {
		group, size := own.choose("web", "db", "batch", "cron"), 1+own.draw.IntN(2)
		own.at(at, "group %s %d", group, size)
		own.at(at+own.upTo(time.Minute), "group %s %d", group, size+1+own.draw.IntN(2))
		mistaken := at + time.Minute + own.mostly(2*time.Minute, 4*time.Minute)
		own.at(mistaken, "record %s %s", group, own.choose("old 1", "old 1", "lost"))
		if own.draw.IntN(4) > 0 {
			own.at(mistaken+own.upTo(20*time.Second), "%s leader", own.choose("stop", "crash"))
		}
		until := mistaken + own.mostly(time.Minute, 5*time.Minute)
		if own.draw.IntN(2) == 0 {
			own.at(until, "record %s back", group)
		}
		for n := range g.servers {
			own.at(until, "start %c", 'a'+n)
		}
	}
	g.lines = append(g.lines, own.lines...)
}

// awaited draws configs that take groups away in other ways than removals does, and whether that is
// confirmed, in a third of the seeds. In half of these the last one is weighed at the end.
func (g *generator) awaited(seed uint64, length time.Duration) {
	own := &generator{draw: rand.New(rand.NewPCG(seed, 0xa3a17)), servers: g.servers}
	if own.draw.IntN(3) > 0 {
		return
	}
	for at := own.upTo(length / 2); at < length; at += 2*time.Minute + own.upTo(length/2) {
		own.takes(at)
		switch own.draw.IntN(4) {
		case 0:
			own.at(at, "refresh")
		case 1:
			own.at(at, "refresh unconfirmed")
		default:
			own.at(at+own.upTo(time.Minute), "%s leader", own.choose("stop", "crash"))
		}
		back := at + own.upTo(3*time.Minute)
		for n := range g.servers {
			own.at(back, "start %c", 'a'+n)
		}
		if own.draw.IntN(2) == 0 {
			own.at(back, "config whole")
			own.at(back, "refresh")
		}
	}
	if own.draw.IntN(2) == 0 {
		own.takes(length)
		own.at(length+time.Second, "weigh")
	}
	g.lines = append(g.lines, own.lines...)
}

// takes draws a config that takes a group away: one that it lists, one whose size it omits or sets
// to 0, or one that never had a machine.
func (g *generator) takes(at time.Duration) {
	switch group := g.choose("web", "db"); g.draw.IntN(4) {
	case 0:
		g.at(at, "config removes %s", group)
	case 1:
		g.at(at, "config unsets %s", group)
	case 2:
		g.at(at, "config %s 0", group)
	default:
		before := at - g.upTo(3*time.Minute)
		g.at(before, "config spare 1")
		g.at(before, "refresh")
		g.at(at, "config spare 0")
	}
}

// caches draws whether servers keep records in a file, in a third of the seeds, and when they lose
// it.
func (g *generator) caches(seed uint64, length time.Duration) bool {
	own := &generator{draw: rand.New(rand.NewPCG(seed, 0xcac4e)), servers: g.servers}
	if own.draw.IntN(3) > 0 {
		return false
	}
	for at := own.upTo(length); at < length; at += time.Minute + own.upTo(length) {
		own.at(at, "forget %s", own.choose("leader", own.named()))
	}
	g.lines = append(g.lines, own.lines...)
	return true
}
