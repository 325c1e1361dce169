package delivery

import (
	"errors"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Reasons for ending a stream.
var (
	ErrReplaced = errors.New("a newer stream of this instance replaced this one")
	ErrSlow     = errors.New("the agent did not receive the message in time")
)

var errStreamEnded = errors.New("the agent's stream ended before it confirmed the files")

// sendTimeout is how long an agent may take to receive a set.
const sendTimeout = 30 * time.Second

// Stream sends to one agent's stream.
type Stream[T any] struct {
	send func(T) error

	once  sync.Once
	ended chan struct{}
	err   error // set before ended is closed
}

func newStream[T any](send func(T) error) *Stream[T] {
	return &Stream[T]{send: send, ended: make(chan struct{})}
}

// Ended is closed when the handler must end the stream, for the reason that Err then returns.
// Sending stops then, or when send fails.
func (s *Stream[T]) Ended() <-chan struct{} { return s.ended }

// Err returns why the stream must end; valid once Ended is closed.
func (s *Stream[T]) Err() error { return s.err }

func (s *Stream[T]) end(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.ended)
	})
}

// deliver sends one message. If it takes too long the stream ends, and with its handler the
// send.
func (s *Stream[T]) deliver(v T) error {
	late := time.AfterFunc(sendTimeout, func() { s.end(ErrSlow) })
	defer late.Stop()
	err := s.send(v)
	if err != nil {
		s.end(err)
	}
	return err
}

// File is one file of a push.
type File struct {
	Name    string
	Content []byte // must not be modified
}

// Push is one commit: the files that differ, and the hash and names of the whole set.
type Push struct {
	Files      []File
	ConfigHash string
	Names      []string
	// Traceparent is the span of the delivery; empty if it does not belong to a trace.
	Traceparent string
}

// OpenFiles registers the stream for an instance's files, ending a previous one. send is
// called by one goroutine at a time, and must fail soon after the stream has ended.
func (d *Delivery) OpenFiles(id fleet.InstanceID, send func(Push) error) *Stream[Push] {
	stream := newStream(send)
	d.with(id, func(s *session) {
		if s.files != nil {
			s.files.end(ErrReplaced)
		}
		s.files = stream
		s.over(errStreamEnded)
	})
	return stream
}

// CloseFiles unregisters a stream.
func (d *Delivery) CloseFiles(id fleet.InstanceID, stream *Stream[Push]) {
	stream.end(nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[id]; s != nil && s.files == stream {
		s.files = nil
		s.over(errStreamEnded)
		d.tidyUp(id, s)
	}
}

// OpenKeys registers the stream for an instance's key requests, ending a previous one and
// dropping the keys that were submitted for it. The requests are sent first, and again when
// they change. send is as in OpenFiles.
func (d *Delivery) OpenKeys(id fleet.InstanceID, send func([]KeyRequest) error) *Stream[[]KeyRequest] {
	stream := newStream(send)
	d.with(id, func(s *session) {
		if s.keys != nil {
			s.keys.end(ErrReplaced)
		}
		s.forgetKeys()
		s.keys = stream
	})
	return stream
}

// CloseKeys unregisters a stream and drops its keys.
func (d *Delivery) CloseKeys(id fleet.InstanceID, stream *Stream[[]KeyRequest]) {
	stream.end(nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[id]; s != nil && s.keys == stream {
		s.forgetKeys()
		d.tidyUp(id, s)
	}
}

func (s *session) forgetKeys() {
	s.keys, s.asked, s.formerly, s.askedOf, s.submitted, s.sums = nil, nil, nil, "", nil, nil
}
