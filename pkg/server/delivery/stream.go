package delivery

import (
	"errors"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Why a stream is to end.
var (
	ErrReplaced = errors.New("a newer stream of this instance took over")
	ErrSlow     = errors.New("what was sent was not received in time")
)

// sendTimeout is how long an agent may take to receive a set.
const sendTimeout = 30 * time.Second

// Stream is the way to one agent's stream.
type Stream[T any] struct {
	send func(T) error

	once  sync.Once
	ended chan struct{}
	err   error // set when ended is closed
}

func newStream[T any](send func(T) error) *Stream[T] {
	return &Stream[T]{send: send, ended: make(chan struct{})}
}

// Ended is closed when whoever serves the stream is to end it, for the reason
// that Err then gives. Sending stops then, as it does when send fails.
func (s *Stream[T]) Ended() <-chan struct{} { return s.ended }

// Err is why the stream is to end; to be asked when Ended is closed.
func (s *Stream[T]) Err() error { return s.err }

func (s *Stream[T]) end(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.ended)
	})
}

// deliver sends one thing. When that takes too long the stream ends, and with its
// handler the sending.
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
	Content []byte // not to be changed
}

// Push is what is sent for one commit: the files that differ, and the hash and
// the names of the whole set.
type Push struct {
	Files      []File
	ConfigHash string
	Names      []string
}

// OpenFiles makes a stream the one that an instance's files are sent on; one
// before it ends. send is called by one goroutine at a time, and must fail soon
// after the stream has ended.
func (d *Delivery) OpenFiles(id fleet.InstanceID, send func(Push) error) *Stream[Push] {
	stream := newStream(send)
	d.with(id, func(s *session) {
		if s.files != nil {
			s.files.end(ErrReplaced)
		}
		s.files, s.push = stream, nil
	})
	return stream
}

// CloseFiles tells that a stream is over.
func (d *Delivery) CloseFiles(id fleet.InstanceID, stream *Stream[Push]) {
	stream.end(nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[id]; s != nil && s.files == stream {
		s.files, s.push = nil, nil
		d.tidyUp(id, s)
	}
}

// OpenKeys makes a stream the one on which an instance is told what keys it
// needs, the first thing and again when that changes; one before it ends, and the
// keys that were submitted are forgotten. send is as in OpenFiles.
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

// CloseKeys tells that a stream is over, and drops the keys with it.
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
