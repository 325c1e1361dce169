// Package s3 is a small S3 for development: one bucket over a directory, where the
// object cluster/ca.crt is the file cluster/ca.crt, to be read and edited by hand.
//
// The protocol is gofakes3's; the storage is our own, because it must survive
// kill -9 and be atomic: a body is read in full before the store's lock is taken,
// written to a temporary file, synced, and renamed into place. Preconditions are
// judged under that lock, which one process holds per directory. An etag is the
// MD5 of the body, as in S3, and so the same after a restart.
//
// As keys are paths, "a" and "a/b" can't both exist: the second is refused.
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
	"strings"
	"sync"

	"github.com/johannesboyne/gofakes3"
)

// RequestsPath answers with the number of requests so far. No bucket can have its
// name: "-" is shorter than any.
const RequestsPath = "/-/requests"

// verbList is how a listing is counted, which is a GET of the bucket itself.
const verbList = "LIST"

// Config is what a Server needs.
type Config struct {
	Root   string       // the directory; made when absent
	Bucket string       // the only bucket
	Logger *slog.Logger // nil means slog.Default()
}

// Requests is the answer at RequestsPath. RequestsPath itself is not counted.
type Requests struct {
	Total    int64            `json:"total"`
	ByMethod map[string]int64 `json:"by_method"` // GET, PUT, DELETE, HEAD, POST, and LIST for a GET of the bucket
}

// Server is an http.Handler that speaks S3. Close it to let another process have
// the directory.
type Server struct {
	s3    http.Handler
	store *store

	mu       sync.Mutex
	requests map[string]int64
}

// New makes the directory if need be, and claims it: a second Server on it, in this
// process or another, is an error.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open dev S3: %w", err)
	}
	st, err := openStore(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("open dev S3: %w", err)
	}
	log := cmp.Or(cfg.Logger, slog.Default())
	fake := gofakes3.New(&backend{bucket: cfg.Bucket, store: st}, gofakes3.WithLogger(logger{log}))
	return &Server{s3: fake.Server(), store: st, requests: map[string]int64{}}, nil
}

func (c Config) validate() error {
	if c.Root == "" {
		return errors.New("root is empty, must be a directory")
	}
	if err := gofakes3.ValidateBucketName(c.Bucket); err != nil {
		return fmt.Errorf("bucket %q: %w", c.Bucket, err)
	}
	return nil
}

// Close gives up the directory. Requests under way may still be served.
func (s *Server) Close() error { return s.store.Close() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == RequestsPath {
		s.serveRequests(w, r)
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

// Requests returns the numbers so far.
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
	// An error here is the client's going away.
	_ = json.NewEncoder(w).Encode(s.Requests())
}

// logger passes gofakes3's messages on: its errors as warnings, all else as debug.
type logger struct{ log *slog.Logger }

func (l logger) Print(level gofakes3.LogLevel, v ...any) {
	detail := slog.String("detail", strings.TrimSpace(fmt.Sprintln(v...)))
	if level == gofakes3.LogErr {
		l.log.Warn("s3 request failed", detail)
		return
	}
	l.log.Debug("s3 request", detail)
}

// claim takes the lock file of the directory; the kernel lets go of it when the
// process dies.
func claim(dir string) (*os.File, error) {
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
