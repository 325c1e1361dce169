package rpc

import "encoding/binary"

const (
	prefaceLength     = 24 // of the client connection preface (RFC 9113, 3.4)
	frameHeaderLength = 9
)

// The relevant frame types (RFC 9113, 6).
const (
	frameData    byte = 0
	frameHeaders byte = 1
	frameReset   byte = 3
)

// frame is the header of an HTTP/2 frame (RFC 9113, 4.1).
type frame struct {
	length int // of the payload, in bytes
	kind   byte
	flags  byte
	stream uint32
}

// flagEndStream marks the last DATA or HEADERS frame of a stream.
const flagEndStream byte = 1

func (f frame) endsStream() bool {
	return (f.kind == frameData || f.kind == frameHeaders) && f.flags&flagEndStream != 0
}

// frameScanner finds frame headers in one direction of a connection, however it is split into
// reads. It interprets nothing else: for data that is not HTTP/2 it yields meaningless frames,
// and the transport closes the connection.
type frameScanner struct {
	preface int // bytes of the client preface that have passed
	head    [frameHeaderLength]byte
	have    int // bytes of head
	payload int // bytes of the current frame's payload still to come
}

// scan processes p, and calls found for each frame whose header ends in it.
func (s *frameScanner) scan(p []byte, found func(frame)) {
	n := min(prefaceLength-s.preface, len(p))
	s.preface += n
	for p = p[n:]; len(p) > 0; {
		if s.payload > 0 {
			n := min(s.payload, len(p))
			s.payload -= n
			p = p[n:]
			continue
		}
		n := copy(s.head[s.have:], p)
		p = p[n:]
		if s.have += n; s.have == frameHeaderLength {
			f := parseFrame(s.head)
			s.have, s.payload = 0, f.length
			found(f)
		}
	}
}

func parseFrame(head [frameHeaderLength]byte) frame {
	return frame{
		length: int(head[0])<<16 | int(head[1])<<8 | int(head[2]),
		kind:   head[3],
		flags:  head[4],
		stream: binary.BigEndian.Uint32(head[5:]) & (1<<31 - 1),
	}
}
