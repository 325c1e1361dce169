package rpc

import (
	"context"
	"time"
)

// How much one stream may hold whatever others hold, in bytes as frameCost counts
// them: a message of 16 KiB, in any two frames; of who shows no certificate, and
// so may be anybody, one that comes with its prefix in 4 KiB.
const (
	alwaysPasses          = 33 << 10
	alwaysPassesOfUnknown = 9 << 10
)

// frameOverhead is about what a frame costs beside its payload until it is read.
const frameOverhead = 128

// intake counts the bytes of one stream that are held: those that have come and
// that nobody has read yet, those of a unary call that is under way, and those of
// its answer until it has gone out. They are counted before they are read from
// the connection, until the stream has ended on it.
type intake struct {
	peers *peers
	who   identity
	// over closes, and cancel is called if there is one, when the stream holds more
	// than it may.
	over   chan struct{}
	cancel context.CancelFunc

	conn   *peerConn
	stream uint32
	unread *time.Timer // set under conn.mu, while the stream has not ended: until an answer that nobody reads closes the connection

	// Under peers.mu.
	came, read int // bytes of DATA frames
	held       int
	isOver     bool
	ended      bool
}

// frameCost is the memory that a DATA frame takes until it is read: the pool's
// buffer that it comes into, and what keeps it in a queue.
func frameCost(length int) int {
	switch {
	case length <= 1<<10:
		return length + frameOverhead
	case length <= 4<<10:
		return 4<<10 + frameOverhead
	default:
		return 16<<10 + frameOverhead
	}
}

// take counts a frame that is about to be read.
func (s *intake) take(length int) {
	p := s.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.ended {
		return
	}
	cost := frameCost(length)
	h := p.of(s.who)
	s.came += length
	s.held += cost
	h.held += cost
	p.held += cost
	if !s.isOver && s.held > s.passes() && (h.held > p.limits.MaxHeld || p.held > p.limits.MaxHeldByAll) {
		s.isOver = true
		close(s.over)
		if s.cancel != nil {
			s.cancel()
		}
	}
}

func (s *intake) passes() int {
	if s.who.spiffe == "" {
		return alwaysPassesOfUnknown
	}
	return alwaysPasses
}

// free tells that a message of so many bytes was read from the stream, by a
// reader that keeps none of it. Nothing is given back before all that came was
// read, because what frames cost is not known of a part of them.
func (s *intake) free(length int) {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	if s.read += length; s.read >= s.came {
		s.giveBack()
	}
}

// charge counts an answer of so many bytes until the stream ends. It is refused
// beyond the identity's share, but when the identity holds nothing else.
func (s *intake) charge(size int) bool {
	p := s.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.ended { // nobody will read it
		return true
	}
	h := p.of(s.who)
	within := h.held+size <= p.limits.MaxHeld && p.held+size <= p.limits.MaxHeldByAll
	if !within && s.held+size > s.passes() && h.held > s.held {
		p.forget(s.who, h)
		return false
	}
	s.held += size
	h.held += size
	p.held += size
	return true
}

// end gives all back, for good.
func (s *intake) end() {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	s.ended = true
	s.giveBack()
}

func (s *intake) giveBack() {
	p := s.peers
	h := p.of(s.who)
	h.held -= s.held
	p.held -= s.held
	s.held = 0
	p.forget(s.who, h)
}
