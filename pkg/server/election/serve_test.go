package election_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/server/election"
)

// oneConn is a listener with one connection.
type oneConn struct {
	conns chan net.Conn
	net.Listener
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
func (l *oneConn) Close() error   { return nil }

// TestEndOfALongSilenceIsWritten: a hold that ends long after its last line ends the answer as
// HTTP ends one. A connection that just breaks is no sign that the hold is over.
func TestEndOfALongSilenceIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mem.New(mem.Config{})
		e := newElector(t, store, "a", "a:1", nil, nil)
		leads, _ := run(t, e)
		<-leads

		client, conn := net.Pipe()
		l := &oneConn{conns: make(chan net.Conn, 1)}
		l.conns <- conn
		server := &http.Server{Handler: e.Handler(), ReadHeaderTimeout: time.Minute}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		defer func() { close(l.conns); server.Close(); <-served }()
		go func() { _, _ = io.WriteString(client, "GET /leader HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") }()
		answer := make(chan []byte, 1)
		go func() {
			all, _ := io.ReadAll(client)
			answer <- all
		}()
		time.Sleep(time.Minute)

		// Another server leads: the next renewal finds that out.
		at, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		var r election.Record
		if err := json.Unmarshal(at.Body, &r); err != nil {
			t.Fatal(err)
		}
		r.Epoch, r.Holder = r.Epoch+1, "b"
		body, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(t.Context(), key, body, object.Precondition{}); err != nil {
			t.Fatal(err)
		}
		if all := <-answer; !bytes.Contains(all, []byte(`"a"`)) || !bytes.HasSuffix(all, []byte("\r\n0\r\n\r\n")) {
			t.Errorf("the answer ends with %q", all[max(0, len(all)-200):])
		}
	})
}
