package rpc

import (
	"net"
	"slices"
	"testing"
)

// TestClosedBeforeItArrives: if the listener closes between expect and arrive, what arrive
// takes is freed, whether the handshake would have started, waited, or been refused.
func TestClosedBeforeItArrives(t *testing.T) {
	h := NewHandshakes(HandshakeLimits{Total: 1, Waiting: 1}, nil)
	others := newGate(t, h.limits)
	others.admission = h.admission
	for _, already := range []int{0, 1, 2} {
		taken, _, _, _ := others.come(already, "192.0.2.2", false)
		l := newAdmittedListener(closedListener{}, Conns{Handshakes: h})
		near, far := net.Pipe()
		c := &admittedConn{Conn: near, listener: l}
		c.visit.begin = c.deliver
		if !l.expect(c) {
			t.Fatal("there is no room")
		}
		l.Close()
		l.arrive(c)
		if n := h.admission.running.all + h.admission.waiting.all; n != already {
			t.Errorf("beside %d, %d handshakes run or wait, want as many", already, n)
		}
		if _, err := far.Write([]byte{0}); err == nil {
			t.Error("the connection is open")
		}
		for _, v := range slices.Backward(taken) { // waiting ones first
			h.leave(v)
		}
	}
	if len(h.admission.sources) != 0 {
		t.Errorf("%d sources are remembered", len(h.admission.sources))
	}
}

type closedListener struct{ net.Listener }

func (closedListener) Close() error { return nil }
