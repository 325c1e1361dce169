package rpc

import (
	"context"
	"time"
)

// How much one stream may always hold, whatever others hold, in bytes as counted by frameCost:
// a 16 KiB message in any two frames; for a caller without a certificate, a 4 KiB message
// including its prefix.
const (
	alwaysPasses          = 33 << 10
	alwaysPassesOfUnknown = 9 << 10
)

// frameOverhead is the approximate cost of an unread frame beside its payload.
const frameOverhead = 128

// intake counts the bytes held by one stream: received and not yet read, of a unary call in
// progress, and of its answer until it was sent. Bytes are counted before they are read from
// the connection, until the stream ends.
type intake struct {
	peers *peers
	who   identity
	// over is closed, and cancel called if set, when the stream exceeds its share.
	over   chan struct{}
	cancel context.CancelFunc

	conn   *peerConn
	stream uint32
	unread *time.Timer // guarded by conn.mu; closes the connection if the answer stays unread

	// Guarded by peers.mu.
	came, read int // bytes of DATA frames
	held       int
	isOver     bool
	ended      bool
}

// frameCost returns the memory that a DATA frame takes until it is read: the pool buffer that
// it is read into, and its queue entry.
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

// count counts a frame that is about to be read.
func (s *intake) count(length int) {
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

// free records that a message was read from the stream and is not kept. Nothing is freed
// before all received bytes are read, because the cost of part of a frame is unknown.
func (s *intake) free(length int) {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	if s.read += length; s.read >= s.came {
		s.giveBack()
	}
}

// charge counts an answer until the stream ends. It returns false if the answer exceeds the
// identity's share, unless the identity holds nothing else.
func (s *intake) charge(size int) bool {
	p := s.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.ended { // the answer will not be read
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

// end frees everything, for good.
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
