package rpc

import (
	"cmp"
	"time"
)

// Limits bound what one peer can make the server do. Zero fields are set from DefaultLimits,
// except where zero means no limit.
//
// An identity is a SPIFFE ID, or without a certificate the source address: an IPv4 address, or
// an IPv6 /64.
type Limits struct {
	MaxReceive       int           // bytes of one message
	MaxHeaderList    uint32        // bytes of one call's metadata (RFC 9113, SETTINGS_MAX_HEADER_LIST_SIZE)
	MaxStreams       uint32        // concurrent calls on one connection
	HandshakeTimeout time.Duration // from accepting the connection to the end of the HTTP/2 preface
	IdleTimeout      time.Duration // a connection without calls is closed after this
	PerSource        Rate          // calls without a client certificate, per source address; zero: no limit

	// MaxConns is the number of connections per SPIFFE ID. Another one closes the oldest.
	MaxConns int
	// Opens limits how often a SPIFFE ID may open streams. Beyond it, the connection is not
	// read for a while.
	Opens Rate
	// MaxPause is the longest time that a connection is not read, because of Opens or while
	// its peer is looked up in the store. A call that would need a longer pause is refused. It
	// must be well below a client's KeepaliveTimeout.
	MaxPause time.Duration
	// MaxHeld and MaxHeldByAll limit the message bytes in progress, per identity and in total:
	// unread ones, and those of an unfinished unary call and its answer. Messages beyond them
	// get RESOURCE_EXHAUSTED, but one of up to 16 KiB always passes, or 4 KiB for a caller
	// without a certificate.
	MaxHeld, MaxHeldByAll int

	// MessageTimeout is how long the message of a call, other than a client stream, may take
	// to arrive.
	MessageTimeout time.Duration
	// CallTimeout limits the handler of every unary call, counted from the call's headers. It
	// does not cover sending the answer; AnswerTimeout does.
	CallTimeout time.Duration
	// AnswerTimeout is how long the client may take to read the rest of an answer after the
	// handler returned. Then the connection is closed.
	AnswerTimeout time.Duration
	// MaxConnectionAge is how long a connection accepts calls, plus or minus a tenth; calls in
	// progress get ConnectionAgeGrace more. Zero means no limit.
	MaxConnectionAge   time.Duration
	ConnectionAgeGrace time.Duration
}

// DefaultLimits suit agents, which hold three streams and make an occasional call.
func DefaultLimits() Limits {
	return Limits{
		MaxReceive:       64 << 10,
		MaxHeaderList:    16 << 10,
		MaxStreams:       8,
		HandshakeTimeout: 10 * time.Second,
		IdleTimeout:      5 * time.Minute,
		MaxConns:         4,
		Opens:            Rate{PerSecond: 10, Burst: 100},
		MaxPause:         3 * time.Second,
		MaxHeld:          512 << 10,
		MaxHeldByAll:     64 << 20,
		MessageTimeout:   30 * time.Second,
		CallTimeout:      30 * time.Second,
		AnswerTimeout:    30 * time.Second,
	}
}

// OperatorLimits allow larger requests, because groups carry vars; more of them, because one
// operator acts for many groups, in several processes; and longer ones, because a config
// refresh waits for the provider up to server.request_timeout, which is ten minutes at most.
func OperatorLimits() Limits {
	l := DefaultLimits()
	l.MaxReceive = 1 << 20
	l.MaxStreams = 100
	l.MaxConns = 32
	l.Opens = Rate{PerSecond: 100, Burst: 1000}
	l.MaxHeld = 16 << 20
	l.CallTimeout = 15 * time.Minute
	return l
}

// RegistrationLimits keep what a caller without a certificate may hold small and short: a
// registration is one call of a few kilobytes.
func RegistrationLimits() Limits {
	l := DefaultLimits()
	l.MaxReceive = 16 << 10
	l.MaxStreams = 4
	l.PerSource = RegistrationRate()
	l.MaxHeldByAll = 16 << 20
	l.MaxConnectionAge = 30 * time.Second
	l.ConnectionAgeGrace = 10 * time.Second
	return l
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	l.MaxReceive = cmp.Or(l.MaxReceive, d.MaxReceive)
	l.MaxHeaderList = cmp.Or(l.MaxHeaderList, d.MaxHeaderList)
	l.MaxStreams = cmp.Or(l.MaxStreams, d.MaxStreams)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, d.HandshakeTimeout)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, d.IdleTimeout)
	l.MaxConns = cmp.Or(l.MaxConns, d.MaxConns)
	l.Opens = cmp.Or(l.Opens, d.Opens)
	l.MaxPause = cmp.Or(l.MaxPause, d.MaxPause)
	l.MaxHeld = cmp.Or(l.MaxHeld, d.MaxHeld)
	l.MaxHeldByAll = cmp.Or(l.MaxHeldByAll, d.MaxHeldByAll)
	l.MessageTimeout = cmp.Or(l.MessageTimeout, d.MessageTimeout)
	l.CallTimeout = cmp.Or(l.CallTimeout, d.CallTimeout)
	l.AnswerTimeout = cmp.Or(l.AnswerTimeout, d.AnswerTimeout)
	return l
}
