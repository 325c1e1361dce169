// Package s3 is a small S3 server for development: one bucket in a directory, where the object
// cluster/ca.crt is the file cluster/ca.crt, which can be read and edited by hand.
//
// It implements objects that are written whole, read and listed: no versions, no multipart uploads,
// no ACLs. The store survives kill -9, and each write is atomic: its body is read in full before
// the store's lock is taken, written to a temporary file, synced, and renamed. Preconditions are
// judged under that lock, which one process holds per directory. An ETag is the MD5 of the body, as
// in S3, and so the same after a restart.
//
// As keys are paths, "a" and "a/b" can't both exist: the second is refused.
//
// A writer of a shard's bucket can make its server run programs, so each request has to be signed,
// and package gate keeps web pages out.
package s3

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/dev/gate"
)

// RequestsPath returns the number of signed requests so far. No bucket can have its name, as "-" is
// too short for one.
const RequestsPath = "/-/requests"

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)

// verbList is the name under which a listing, a GET of the bucket, is counted.
const verbList = "LIST"

// Config is the configuration of a Server.
type Config struct {
	Root   string // the directory; created if missing
	Bucket string // the only bucket
	// Keys returns the secret key of an access key and, for temporary keys, of its token. It must
	// be safe for concurrent use.
	Keys func(id, token string) (secret string, known bool)
	// Network allows Run to listen on addresses that other machines can reach.
	Network bool
	Logger  *slog.Logger     // nil: slog.Default()
	Now     func() time.Time // nil: time.Now
	// Wrap wraps the store's handler, behind the checks, so that tests can make it misbehave; nil:
	// it is not wrapped.
	Wrap func(store http.Handler) http.Handler

	bound string // the address passed to Run
}

// Key returns a Config.Keys with one access key and its token; empty: none.
func Key(id, secret, token string) func(id, token string) (secret string, known bool) {
	return func(asked, with string) (string, bool) { return secret, asked == id && with == token }
}

// Requests is the reply at RequestsPath. Requests for RequestsPath are not counted.
type Requests struct {
	Total    int64            `json:"total"`
	ByMethod map[string]int64 `json:"by_method"` // GET, PUT, DELETE, HEAD, POST, and LIST for a GET of the bucket
}

// Server is an http.Handler that implements S3. Close releases the directory for other processes.
type Server struct {
	handler http.Handler
	s3      http.Handler
	keys    func(id, token string) (secret string, known bool)
	now     func() time.Time
	store   *store

	mu       sync.Mutex
	requests map[string]int64
}

// New creates the directory if it is missing, and locks it: a second Server on it, in this process
// or another, is an error.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open dev S3: %w", err)
	}
	st, err := openStore(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("open dev S3: %w", err)
	}
	log := cmp.Or(cfg.Logger, slog.Default())
	s := &Server{s3: &protocol{bucket: cfg.Bucket, store: st, log: log}, keys: cfg.Keys, now: cfg.Now, store: st, requests: map[string]int64{}}
	if cfg.Wrap != nil {
		s.s3 = cfg.Wrap(s.s3)
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.handler = gate.Local(cfg.bound, http.HandlerFunc(s.serve))
	return s, nil
}

func (c Config) validate() error {
	if c.Root == "" {
		return errors.New("root is empty, must be a directory")
	}
	if !bucketName.MatchString(c.Bucket) {
		return fmt.Errorf("bucket %.80q: want 3 to 63 lowercase letters, digits and inner hyphens", c.Bucket)
	}
	if c.Keys == nil {
		return errors.New("keys are missing, must be those that requests are signed with")
	}
	return nil
}

// Close releases the directory. Open requests may still be served.
func (s *Server) Close() error { return s.store.Close() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// serve serves local requests. The counts, which say nothing about the bucket, need no signature.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == RequestsPath {
		s.serveRequests(w, r)
		return
	}
	if refused := s.authenticate(w, r); refused != nil {
		refused.write(w)
		return
	}
	method := r.Method
	if _, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); method == http.MethodGet && key == "" {
		method = verbList
	}
	s.mu.Lock()
	s.requests[method]++
	s.mu.Unlock()
	s.s3.ServeHTTP(w, r)
}

// Requests returns the counts so far.
func (s *Server) Requests() Requests {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Requests{ByMethod: maps.Clone(s.requests)}
	for _, n := range s.requests {
		r.Total += n
	}
	return r
}

func (s *Server) serveRequests(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "only GET is answered here", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The error is that of a client that has gone.
	_ = json.NewEncoder(w).Encode(s.Requests())
}

// lockDir locks the directory's lock file; the kernel releases it when the process ends.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s is held by another process: %w", path, err)
	}
	return f, nil
}
