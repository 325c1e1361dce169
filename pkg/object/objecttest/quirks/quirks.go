// Package quirks is an HTTP handler in front of an S3-compatible store that adds one quirk that
// stores or proxies are known for.
package quirks

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// quirk is a deviation. Nil functions mean regular behaviour.
type quirk struct {
	name    string
	refuses func(s *Store, r request) (status int, code string) // 0: pass the request on
	asks    func(r request)                                     // changes a request
	answers func(s *Store, r request, a *answer)                // changes the store's response
}

// request is one request, with its kind and number.
type request struct {
	*http.Request
	put   bool
	lists bool
	nth   int // number of the write; 0: not a write
}

// third reports whether r is a write that an intermittent fault affects.
func (r request) third() bool { return r.put && r.nth%3 == 0 }

// answer is a response.
type answer struct {
	status int
	header http.Header
	body   string
	cut    bool // the connection ends within the headers
}

// Modes returns the names of the quirks, in the order of docs/storage.md.
func Modes() (names []string) {
	for _, q := range all() {
		names = append(names, q.name)
	}
	return names
}

// Store is the handler. Safe for concurrent use.
type Store struct {
	inner http.Handler

	mu      sync.Mutex
	quirk   quirk
	writes  int
	deleted map[string]bool
	busy    map[string]bool
	written map[string]time.Time // last permitted write of a path
	history history
}

// New returns a handler that applies the named quirk to inner.
func New(mode string, inner http.Handler) *Store {
	s := &Store{inner: inner, deleted: map[string]bool{}, busy: map[string]bool{}, written: map[string]time.Time{}, history: history{}}
	s.Switch(mode)
	return s
}

// Switch selects the quirk for later requests by name; the empty name means none.
func (s *Store) Switch(mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quirk = quirk{}
	for _, q := range all() {
		if q.name == mode {
			s.quirk = q
		}
	}
}

// ServeHTTP implements http.Handler.
func (s *Store) ServeHTTP(w http.ResponseWriter, plain *http.Request) {
	r, q := s.begin(plain)
	if q.refuses != nil {
		if status, code := q.refuses(s, r); status != 0 {
			send(w, refusal(status, code))
			return
		}
	}
	if q.asks != nil {
		q.asks(r)
	}
	send(w, s.pass(plain.Context(), r, q))
}

// pass forwards the request to the store.
func (s *Store) pass(ctx context.Context, r request, q quirk) answer {
	changes := r.put || r.Method == http.MethodDelete
	if changes {
		s.remember(ctx, r.URL.Path, time.Time{})
	}
	recorded := httptest.NewRecorder()
	s.inner.ServeHTTP(recorded, r.Request)
	if changes {
		s.remember(ctx, r.URL.Path, time.Now())
	}
	a := answer{status: recorded.Code, header: recorded.Header(), body: recorded.Body.String()}
	if q.answers != nil {
		q.answers(s, r, &a)
	}
	return a
}

func (s *Store) begin(plain *http.Request) (request, quirk) {
	r := request{Request: plain, put: plain.Method == http.MethodPut, lists: plain.URL.Query().Has("list-type")}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.put {
		s.writes++
		r.nth = s.writes
	}
	return r, s.quirk
}

// do runs f with mu held.
func (s *Store) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func refusal(status int, code string) answer {
	return answer{
		status: status, header: http.Header{"Content-Type": {"application/xml"}},
		body: "<Error><Code>" + code + "</Code><Message>quirk</Message></Error>",
	}
}

// send writes a response, or its beginning.
func send(w http.ResponseWriter, a answer) {
	if a.cut {
		cut(w)
		return
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write([]byte(a.body))
}

// cut ends the connection within the headers of a response.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // already ended
	}
	_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: \"d41d"))
	_ = conn.Close()
}
