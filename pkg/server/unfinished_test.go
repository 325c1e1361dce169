package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

// begin sends the beginning of a request; pair nil: without TLS. It returns the status of the
// answer, 0 without one, when that began, and when the server closed the connection.
func (s *site) begin(addr string, pair *pki.Keypair, request string) (status int, answered, closed time.Duration) {
	s.t.Helper()
	began := time.Now()
	conn, err := s.connect(context.Background(), addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(began.Add(2 * time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	stream := conn
	if pair != nil {
		e := pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(s.trust().Bundle, pair), Now: time.Now}
		stream = tls.Client(conn, e.Client(loopback, shardID))
	}
	if _, err := io.WriteString(stream, request); err != nil {
		s.t.Fatal(err)
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(stream, first); err != nil {
		return 0, 0, time.Since(began)
	}
	answered = time.Since(began)
	all, _ := io.ReadAll(stream)
	closed = time.Since(began)
	answer, err := http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(first), bytes.NewReader(all))), nil)
	if err != nil {
		s.t.Fatalf("%q: %v", all, err)
	}
	answer.Body.Close()
	return answer.StatusCode, answered, closed
}

// TestUnfinishedRequests: a request whose header or body never ends is ended on the ports of
// HTTP too, and keeps its connection open for seconds only.
func TestUnfinishedRequests(t *testing.T) {
	const atOnce, header, body = time.Second, " HTTP/1.1\r\nHost: a\r\n", " HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"
	simulated(t, func(t *testing.T) {
		s, p := running(t, measured)
		metrics, health, peers, peer := p.addr("serving metrics", "addr"), p.healthAddr(), p.addr("serving", "election"), s.serverOf(shardID)
		for _, c := range []struct {
			name, addr string
			pair       *pki.Keypair
			request    string
			want       int           // 0: the connection is closed without an answer
			within     time.Duration // of the answer
		}{
			{"a probe's header", health, nil, "GET /" + header, 0, 0},
			{"a probe's body", health, nil, "POST /" + body, http.StatusOK, atOnce},
			{"a scrape's header", metrics, nil, "GET /metrics" + header, 0, 0},
			{"a scrape's body", metrics, nil, "GET /metrics" + body, http.StatusOK, 6 * time.Second},
			{"a peer's header", peers, peer, "GET /leader" + header, 0, 0},
			{"a peer's answer", peers, peer, "POST /ready" + body, http.StatusBadRequest, 6 * time.Second},
			{"a question with a body", peers, peer, "GET /leader" + body, http.StatusBadRequest, atOnce},
			{"another method of the leader", peers, peer, "POST /leader" + body, 0, 0},
			{"another method of answers", peers, peer, "GET /ready" + body, 0, 0},
			{"no path", peers, peer, "POST /" + body, 0, 0},
		} {
			got, answered, closed := s.begin(c.addr, c.pair, c.request)
			if got != c.want || answered > c.within {
				t.Errorf("%s is answered with %d after %s, want %d within %s", c.name, got, answered, c.want, c.within)
			}
			if closed > 15*time.Second {
				t.Errorf("%s: closed after %s", c.name, closed)
			}
		}
	})
}
