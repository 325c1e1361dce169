package election_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/nstance/nstance/pkg/server/election"
)

// network connects electors in one process: an address is a handler, and the dialer reads what
// it writes.
type network struct {
	mu    sync.Mutex
	hosts map[string]*host
}

// host is the listener of an address. Its state determines the result of a dial.
type host struct {
	handler http.Handler
	answers http.Handler
	ctx     context.Context // ends with the process: its connections are closed
	silent  bool            // connections neither open nor end
	stop    context.CancelFunc
}

func newNetwork() *network { return &network{hosts: map[string]*host{}} }

// listen serves e at addr until kill.
func (n *network) listen(addr string, e *election.Elector) {
	ctx, stop := context.WithCancel(context.Background())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[addr] = &host{handler: e.Handler(), answers: e.Answers(), ctx: ctx, stop: stop}
}

// kill closes the listener at addr and its connections.
func (n *network) kill(addr string) {
	n.mu.Lock()
	h := n.hosts[addr]
	delete(n.hosts, addr)
	n.mu.Unlock()
	h.stop()
}

// silence makes addr drop everything silently.
func (n *network) silence(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[addr].silent = true
}

func (n *network) quiet(h *host) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return h.silent
}

func (n *network) Dial(ctx context.Context, addr string) (election.Stream, error) {
	n.mu.Lock()
	h := n.hosts[addr]
	n.mu.Unlock()
	if h == nil {
		return nil, fmt.Errorf("dial %s: %w", addr, election.ErrRefused)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &pipe{network: n, host: h, ctx: ctx, cancel: cancel, lines: make(chan []byte, 64), header: http.Header{}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+election.LeaderPath, http.NoBody)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(s.lines)
		h.handler.ServeHTTP(s, req)
	}()
	return s, nil
}

// Answer implements election.Dialer.
func (n *network) Answer(ctx context.Context, addr string, a election.Answer) error {
	n.mu.Lock()
	h := n.hosts[addr]
	n.mu.Unlock()
	if h == nil {
		return fmt.Errorf("answer %s: %w", addr, election.ErrRefused)
	}
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	w := httptest.NewRecorder()
	h.answers.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+election.ReadyPath, bytes.NewReader(body)))
	if w.Code != http.StatusNoContent {
		return fmt.Errorf("answer %s: %s", addr, w.Body)
	}
	return nil
}

// pipe is the ResponseWriter on one side and the Stream on the other.
type pipe struct {
	network *network
	host    *host
	ctx     context.Context
	cancel  context.CancelCauseFunc
	lines   chan []byte
	header  http.Header
}

func (p *pipe) Header() http.Header { return p.header }
func (p *pipe) WriteHeader(int)     {}
func (p *pipe) Flush()              {}
func (p *pipe) Write(b []byte) (int, error) {
	if p.host.ctx.Err() != nil {
		return 0, errors.New("process is gone")
	}
	if !p.network.quiet(p.host) {
		p.lines <- bytes.Clone(b)
	}
	return len(b), nil
}

func (p *pipe) Next() (election.Line, error) {
	closed := p.host.ctx.Done()
	select {
	case <-p.ctx.Done():
		return election.Line{}, context.Cause(p.ctx)
	case b, ok := <-p.lines:
		if ok {
			return election.ParseLine(b)
		}
	case <-closed:
	}
	if p.network.quiet(p.host) {
		<-p.ctx.Done()
		return election.Line{}, context.Cause(p.ctx)
	}
	return election.Line{}, election.ErrClosed
}

func (p *pipe) Close() error {
	p.cancel(errors.New("stream closed"))
	return nil
}
