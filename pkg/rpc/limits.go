package rpc

import (
	"cmp"
	"time"
)

// Limits bound what one peer can make the server do. A zero field takes the
// value of DefaultLimits, but where it says that zero is no limit.
//
// An identity is a SPIFFE id, or the source address where no certificate is shown:
// an IPv4 address, or an IPv6 /64.
type Limits struct {
	MaxReceive       int           // bytes of one message
	MaxHeaderList    uint32        // bytes of one call's metadata (RFC 9113, SETTINGS_MAX_HEADER_LIST_SIZE)
	MaxStreams       uint32        // calls under way on one connection
	HandshakeTimeout time.Duration // from the accepted connection to the end of the HTTP/2 preface
	IdleTimeout      time.Duration // a connection without any call is closed
	PerSource        Rate          // calls without a client certificate, per source address; zero: no limit

	// MaxConns is how many connections one SPIFFE id has at a time. The newest
	// wins: one more closes the oldest.
	MaxConns int
	// Opens is how often one SPIFFE id opens a stream. Who is faster is kept
	// waiting, by not being read.
	Opens Rate
	// MaxPause is how long a connection is not read at a time, for Opens or because
	// the store is being asked about its peer. The call for which that is too short
	// is refused. It must be well below a client's KeepaliveTimeout.
	MaxPause time.Duration
	// MaxHeld and MaxHeldByAll are how many bytes of messages one identity, and all
	// together, have under way: not read yet, or of a unary call that has not
	// ended, and of its answer. What goes beyond is RESOURCE_EXHAUSTED, but a message of up to 16 KiB
	// always passes; 4 KiB of who shows no certificate.
	MaxHeld, MaxHeldByAll int

	// MessageTimeout is how long the message of a call, but of one that streams
	// messages, may take to come.
	MessageTimeout time.Duration
	// CallTimeout ends the handler of every unary call, counted from the call's
	// headers. It says nothing of the answer: that is AnswerTimeout.
	CallTimeout time.Duration
	// AnswerTimeout is how long the rest of an answer may take to be read, counted
	// from when its handler has returned. Then the connection is closed.
	AnswerTimeout time.Duration
	// MaxConnectionAge is how long a connection takes calls, give or take a tenth;
	// calls under way have ConnectionAgeGrace more. Zero is no limit.
	MaxConnectionAge   time.Duration
	ConnectionAgeGrace time.Duration
}

// DefaultLimits suit agents, who hold three streams and make a call now and then.
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

// OperatorLimits allow larger requests, because groups carry vars; more of them,
// because one operator acts for many groups, in many processes; and longer ones,
// because a refresh of the config waits for the provider for as long as
// server.request_timeout says, which is ten minutes at most.
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

// RegistrationLimits keep what anybody may hold without a certificate small and
// short: a registration is one call of a few kilobytes.
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
