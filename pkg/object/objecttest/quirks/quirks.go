// Package quirks is an HTTP handler in front of a store that speaks S3, with one quirk
// that stores or the proxies before them are known for.
package quirks

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
)

// Modes returns the names of the quirks, in the order of docs/storage.md.
func Modes() []string {
	return []string{
		"conditions ignored", "conditions inverted", "weak ETags", "missing ETags", "409 for 412", "hidden keys", "no page tokens",
		"delete markers", "clock skew", "5xx before landing", "5xx after landing", "one write at a time",
	}
}

// Store is the handler. Every third write meets the faults that come and go.
type Store struct {
	mode  string
	inner http.Handler

	mu      sync.Mutex
	writes  int
	deleted map[string]bool
	busy    map[string]bool
}

// New returns a handler with the quirk of that name before inner.
func New(mode string, inner http.Handler) *Store {
	return &Store{mode: mode, inner: inner, deleted: map[string]bool{}, busy: map[string]bool{}}
}

// ServeHTTP implements http.Handler.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if code, status := s.before(r); status != 0 {
		refuse(w, status, code)
		return
	}
	answer := httptest.NewRecorder()
	s.inner.ServeHTTP(answer, r)
	s.after(w, r, answer)
}

// before changes a request, or says how it is refused.
func (s *Store) before(r *http.Request) (code string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put := r.Method == http.MethodPut
	if put {
		s.writes++
	}
	switch s.mode {
	case "delete markers":
		if put && s.deleted[r.URL.Path] && r.Header.Get("If-None-Match") != "" {
			return "PreconditionFailed", http.StatusPreconditionFailed
		}
		s.deleted[r.URL.Path] = s.deleted[r.URL.Path] || r.Method == http.MethodDelete
	case "clock skew":
		return "RequestTimeTooSkewed", http.StatusForbidden
	case "5xx before landing":
		if put && s.writes%3 == 0 {
			return "InternalError", http.StatusInternalServerError
		}
	case "one write at a time":
		if put && s.busy[r.URL.Path] {
			s.busy[r.URL.Path] = false // the next one is let through
			return "SlowDown", http.StatusServiceUnavailable
		}
		s.busy[r.URL.Path] = put
	default:
		s.rewrite(r)
	}
	return "", 0
}

// rewrite changes a request that is let through.
func (s *Store) rewrite(r *http.Request) {
	switch s.mode {
	case "conditions ignored":
		r.Header.Del("If-Match")
		r.Header.Del("If-None-Match")
	case "conditions inverted":
		if r.Method == http.MethodPut && r.Header.Get("If-None-Match") != "" {
			r.Header.Del("If-None-Match")
			r.Header.Set("If-Match", "*")
		}
	case "no page tokens":
		q := r.URL.Query()
		q.Del("start-after")
		q.Del("continuation-token")
		r.URL.RawQuery = q.Encode()
	}
}

var lastKey = regexp.MustCompile(`(?s)<Contents>(?:[^<]|<[^/]|</[^C]|</C[^o])*page3.*?</Contents>`)

// after passes the answer on, changed.
func (s *Store) after(w http.ResponseWriter, r *http.Request, answer *httptest.ResponseRecorder) {
	header, body, status := answer.Header(), answer.Body.String(), answer.Code
	switch s.mode {
	case "weak ETags":
		if etag := header.Get("ETag"); etag != "" {
			header.Set("ETag", "W/"+etag)
		}
	case "missing ETags":
		header.Del("ETag")
	case "409 for 412":
		if status == http.StatusPreconditionFailed {
			refuse(w, http.StatusConflict, "ConditionalRequestConflict")
			return
		}
	case "hidden keys":
		if strings.Contains(r.URL.RawQuery, "list-type") {
			body = lastKey.ReplaceAllString(body, "")
			header.Del("Content-Length")
		}
	case "5xx after landing":
		s.mu.Lock()
		lost := r.Method == http.MethodPut && s.writes%3 == 0
		s.mu.Unlock()
		if lost {
			refuse(w, http.StatusBadGateway, "BadGateway")
			return
		}
	}
	for name, values := range header {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = w.Write([]byte("<Error><Code>" + code + "</Code><Message>quirk</Message></Error>"))
}
