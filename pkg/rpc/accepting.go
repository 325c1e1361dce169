package rpc

import (
	"net"
	"sync"
)

// accepting is the part of a listener that processes each connection before Accept returns it,
// or drops it. It accepts from the first Accept until done is closed.
type accepting[C net.Conn] struct {
	net.Listener
	take func(net.Conn) // processes a connection; those to return go to ready

	begin, end sync.Once
	ready      chan C
	errs       chan error
	done       chan struct{}
}

// Accept returns a connection that take put into ready.
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

// run accepts until the listener is closed. Temporary errors, such as running out of file
// descriptors, are left to the caller of Accept to wait for.
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
