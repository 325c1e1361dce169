package audit

import (
	"container/list"
	"net/netip"
	"time"
)

// maxSources bounds the number of remembered sources. The least recently seen one is evicted,
// and its omitted lines are counted in the next line of any source.
const maxSources = 1 << 13

// rate is the rate of a token bucket: burst tokens, refilled with perSecond.
type rate struct {
	perSecond float64
	burst     int
}

type bucket struct {
	tokens float64
	at     time.Time
	missed int // lines omitted since the last one
}

// take takes a token, and returns false if there is none. A clock that was set back gains
// none.
func (b *bucket) take(r rate, now time.Time) bool {
	b.tokens = min(float64(r.burst), b.tokens+r.perSecond*max(0, now.Sub(b.at)).Seconds())
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// budget decides which lines may be written. Not safe for concurrent use.
type budget struct {
	each, all rate
	sources   map[string]*list.Element // of *source
	recent    *list.List               // most recently seen first
	together  bucket
}

type source struct {
	name string
	bucket
}

func newBudget(each, all rate) *budget {
	return &budget{each: each, all: all, sources: map[string]*list.Element{}, recent: list.New(), together: bucket{tokens: float64(all.burst)}}
}

// allow reports whether a source may write a line, which must forces, and how many lines were
// omitted before it: of that source, and of evicted sources.
func (b *budget) allow(name string, now time.Time, must bool) (leftOut int, ok bool) {
	s := b.of(name, now)
	ok = s.take(b.each, now)
	lacks := &s.bucket
	if ok {
		ok, lacks = b.together.take(b.all, now), &b.together
	}
	if !ok && !must {
		lacks.missed++
		return 0, false
	}
	leftOut = s.missed + b.together.missed
	s.missed, b.together.missed = 0, 0
	return leftOut, true
}

func (b *budget) of(name string, now time.Time) *source {
	if e, ok := b.sources[name]; ok {
		b.recent.MoveToFront(e)
		return e.Value.(*source)
	}
	if len(b.sources) >= maxSources {
		last := b.recent.Back()
		gone := b.recent.Remove(last).(*source)
		b.together.missed += gone.missed
		delete(b.sources, gone.name)
	}
	s := &source{name: name, bucket: bucket{tokens: float64(b.each.burst), at: now}}
	b.sources[name] = b.recent.PushFront(s)
	return s
}

// sourceOf returns the source that an address counts for: an IPv4 address, or the /64 of an
// IPv6 one, which usually belongs to one host. Anything else counts as itself.
func sourceOf(from string) string {
	at, err := netip.ParseAddrPort(from)
	if err != nil {
		return brief(from)
	}
	addr, bits := at.Addr().Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(addr, bits).Masked().String()
}
