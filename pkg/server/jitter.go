package server

import (
	"encoding/binary"
	"io"
	"time"
)

// uniform draws from [0, 1), evenly enough for waits; without randomness to be had
// it is 0.
func (s *Server) uniform() float64 {
	var b [8]byte
	if _, err := io.ReadFull(s.cfg.Random, b[:]); err != nil {
		return 0
	}
	return float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
}

// jitter draws from [0, most), so that servers which fail together don't try
// again together.
func (s *Server) jitter(most time.Duration) time.Duration {
	return time.Duration(s.uniform() * float64(max(0, most)))
}
