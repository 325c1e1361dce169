package rpc

import (
	"net"
	"sync"
)

// accepting is the part of a listener that does something with each connection
// before Accept returns it, or does not. It accepts from the first Accept on, until
// done is closed.
type accepting[C net.Conn] struct {
	net.Listener
	take func(net.Conn) // what becomes of a connection; those to return go to ready

	begin, end sync.Once
	ready      chan C
	errs       chan error
	done       chan struct{}
}

// Accept returns a connection that take found ready.
func (a *accepting[C]) Accept() (net.Conn, error) {
	a.begin.Do(func() { go a.run() })
	select {
	case c := <-a.ready:
		return c, nil
	case err := <-a.errs:
		return nil, err
	case <-a.done:
		return nil, net.ErrClosed
	}
}

// run accepts until the listener is closed. What the operating system refuses
// for a moment, as for want of file descriptors, is for the caller of Accept to
// wait for.
func (a *accepting[C]) run() {
	for {
		conn, err := a.Listener.Accept()
		if err == nil {
			a.take(conn)
			continue
		}
		select {
		case a.errs <- err:
		case <-a.done:
			return
		}
	}
}
