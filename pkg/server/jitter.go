package server

import (
	"encoding/binary"
	"io"
	"time"
)

// jitter draws from [0, most), so that servers which fail together don't try
// again together. It is spread evenly enough for waits; without randomness to
// be had it is none.
func (s *Server) jitter(most time.Duration) time.Duration {
	var b [8]byte
	if _, err := io.ReadFull(s.cfg.Random, b[:]); err != nil || most <= 0 {
		return 0
	}
	return time.Duration(binary.BigEndian.Uint64(b[:]) % uint64(most))
}
