package shardtest

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// listings draws when listings of the store lack keys or are late while reads by key are
// consistent, in half of the seeds, usually with a change of leaders meanwhile, since a new
// leader has no memory. It has its own random source, so that other draws don't change.
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

// doListingsLack makes listings of one kind of object lack a percentage of the keys: the same
// keys until it ends, like a store that has lost an index.
func doListingsLack(s *Shard, a args) error {
	prefix, percent := a.words[0]+"/", uint64(a.count)
	hides := func(key string) bool { return strings.HasPrefix(key, prefix) && hash("listing", key)%100 < percent }
	s.listing.Hide(hides)
	setUnlisted(s.book, func(i fleet.Instance) bool { return hides(recordKey(i)) })
	return nil
}

// doListingsLate makes listings of one kind of object show an earlier state.
func doListingsLate(s *Shard, a args) error {
	s.listing.Lag(a.span, a.words[0]+"/")
	switch a.words[0] {
	case "instance":
		setUnlisted(s.book, func(i fleet.Instance) bool { return time.Since(i.ID.Time()) < a.span+relist })
	case "groups":
		s.book.hands.lagged(a.span)
	}
	return nil
}

func doListingsFair(s *Shard, _ args) error {
	s.fairListings()
	return nil
}

func (s *Shard) fairListings() {
	s.listing.Hide(nil)
	s.listing.Lag(0)
	setUnlisted(s.book, func(fleet.Instance) bool { return false })
}

// relist is the time until a leader has listed the records again: a lease after its takeover.
const relist = 32 * time.Second

// setUnlisted sets which records listings lack from now on. What they lacked before may be
// unknown until they were listed again.
func setUnlisted(b *book, unlisted func(fleet.Instance) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, until := b.unlisted, time.Now().Add(relist)
	b.unlisted = func(i fleet.Instance) bool {
		return unlisted(i) || time.Now().Before(until) && before(i)
	}
}

// recordKey returns the key of an instance's record.
func recordKey(i fleet.Instance) string {
	return "instance/" + shardID + "/" + i.Tenant + "." + i.ID.StorageKey() + ".json"
}
