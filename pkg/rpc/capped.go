package rpc

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// cappedListener limits open connections, in total and per source. A source has a list only
// while it has connections, so Max also bounds the table.
type cappedListener struct {
	net.Listener
	limits Conns

	mu      sync.Mutex
	open    int
	sources map[netip.Prefix]*list.List // of *countedConn, oldest first
}

func newCappedListener(l net.Listener, limits Conns) *cappedListener {
	return &cappedListener{Listener: l, limits: limits.withDefaults(), sources: make(map[netip.Prefix]*list.List)}
}

// Accept waits for a connection for which there is room.
func (l *cappedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &countedConn{Conn: conn, listener: l}
		c.source, _ = sourceOfAddr(conn.RemoteAddr())
		ok, oldest := l.enter(c)
		if oldest != nil {
			oldest.Conn.Close() // the new connection already has its place
		}
		if ok {
			return c, nil
		}
		conn.Close()
	}
}

// enter takes a place, replacing oldest if needed and allowed.
func (l *cappedListener) enter(c *countedConn) (ok bool, oldest *countedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.crowded(c.source)
	if from != nil {
		if !l.limits.OldestGoes {
			return false, nil
		}
		oldest, _ = from.Front().Value.(*countedConn)
		l.leave(oldest)
	}
	l.open++
	if l.sources[c.source] == nil {
		l.sources[c.source] = list.New()
	}
	c.place = l.sources[c.source].PushBack(c)
	return true, oldest
}

// crowded returns the list from which a connection must be closed to make room for one of this
// source; nil if there is room.
func (l *cappedListener) crowded(source netip.Prefix) (most *list.List) {
	if own := l.sources[source]; own != nil && own.Len() >= l.limits.PerSource {
		return own
	}
	if l.open < l.limits.Max {
		return nil
	}
	for _, of := range l.sources {
		if most == nil || of.Len() > most.Len() {
			most = of
		}
	}
	return most
}

func (l *cappedListener) leave(c *countedConn) {
	if c.place == nil {
		return
	}
	of := l.sources[c.source]
	of.Remove(c.place)
	c.place = nil
	l.open--
	if of.Len() == 0 {
		delete(l.sources, c.source)
	}
}

type countedConn struct {
	net.Conn
	listener *cappedListener
	source   netip.Prefix
	place    *list.Element // nil once closed
}

// Close closes the connection and frees its place. Idempotent.
func (c *countedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.leave(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
