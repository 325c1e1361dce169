package shardtest

import (
	"math/rand/v2"
	"strings"
	"time"
)

// listings draws when listings of the store lack keys or are late, while every read by
// key is right, in half of the seeds, and mostly a change of leaders while they are: a new
// leader knows nothing yet. These draws are apart from all others, which stay what they
// are.
func (g *generator) listings(seed uint64, length time.Duration) {
	own := &generator{draw: rand.New(rand.NewPCG(seed, 0x11575)), servers: g.servers}
	if own.draw.IntN(2) > 0 {
		return
	}
	for at := own.upTo(length / 2); at < length; at += time.Minute + own.upTo(length/2) {
		until := at + 20*time.Second + own.mostly(time.Minute, 5*time.Minute)
		kind := own.choose("instance", "instance", "instance", "groups", "groups", "groups", "request", "cluster", "probe")
		if own.draw.IntN(2) == 0 {
			own.at(at-own.upTo(time.Minute), "group %s %d", own.choose("batch", "cron"), 1+own.draw.IntN(3))
		}
		if own.draw.IntN(2) == 0 {
			own.at(at, "listings %s lack %d", kind, []int{20, 50, 100, 100}[own.draw.IntN(4)])
		} else {
			own.at(at, "listings %s late %s", kind, own.mostly(20*time.Second, 3*time.Minute))
		}
		if own.draw.IntN(4) > 0 {
			own.at(at+own.upTo(until-at), "%s leader", own.choose("stop", "crash"))
		}
		own.at(until, "listings fair")
		for n := range g.servers {
			own.at(until, "start %c", 'a'+n)
		}
	}
	g.lines = append(g.lines, own.lines...)
}

// doListingsLack has listings of one kind of object lack so many of a hundred keys: the
// same keys until it ends, as the listing of a store does that has lost an index.
func doListingsLack(s *Shard, a args) error {
	prefix, percent := a.words[0]+"/", uint64(a.count)
	s.listing.Hide(func(key string) bool { return strings.HasPrefix(key, prefix) && hash("listing", key)%100 < percent })
	return nil
}

// doListingsLate has listings of one kind of object show what was there so long ago.
func doListingsLate(s *Shard, a args) error {
	s.listing.Lag(a.span, a.words[0]+"/")
	return nil
}

func doListingsFair(s *Shard, _ args) error {
	s.fairListings()
	return nil
}

func (s *Shard) fairListings() {
	s.listing.Hide(nil)
	s.listing.Lag(0)
}
