//go:build integration

package containers

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Call is a server's request to the engine that changes something, whatever its result.
type Call struct {
	Server string
	Began  time.Time // when the request was made
	Method string
	Path   string        // without the API's version and the query
	Took   time.Duration // until the response was forwarded; 0: in progress
}

// Recorder records the servers' changes at the engine. It is safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	calls []Call
}

// Calls returns the calls so far, in the order of their requests.
func (r *Recorder) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// noting forwards a server's requests to next, and records those that are not reads.
func (r *Recorder) noting(server string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet || req.Method == http.MethodHead {
			next.ServeHTTP(w, req)
			return
		}
		path := req.URL.Path
		if version, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/"); ok && strings.HasPrefix(version, "v1.") {
			path = "/" + rest
		}
		nth, began := r.note(server, req.Method, path)
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls[nth].Took = time.Since(began)
		}()
		next.ServeHTTP(w, req)
	})
}

// note records a call that begins now.
func (r *Recorder) note(server, method, path string) (nth int, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	began = time.Now()
	r.calls = append(r.calls, Call{Server: server, Began: began, Method: method, Path: path})
	return len(r.calls) - 1, began
}

// Socket creates a socket of the engine for one server, which records its calls. It belongs to the
// group of the engine's own socket, and exists until the test ends.
func (w *World) Socket(r *Recorder, server string) string {
	w.Helper()
	engine := w.socket()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: "engine"})
		},
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", engine)
		}},
		FlushInterval: -1, // events are flushed as they happen
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	folder := filepath.Join(w.Dir, server)
	w.Must(os.Mkdir(folder, 0o755))
	path := filepath.Join(folder, "docker.sock")
	listener, err := new(net.ListenConfig).Listen(w.Context(), "unix", path)
	w.Must(err)
	w.Must(os.Chown(path, -1, groupOf(w, engine)))
	w.Must(os.Chmod(path, 0o660))
	front := &http.Server{Handler: r.noting(server, proxy), ReadHeaderTimeout: time.Minute, ErrorLog: proxy.ErrorLog}
	go func() { _ = front.Serve(listener) }() // it ends with the server
	w.Cleanup(func() { _ = front.Close() })
	return path
}

// socket returns the path of the engine's own socket.
func (w *World) socket() string {
	w.Helper()
	path, ok := strings.CutPrefix(w.API.DaemonHost(), "unix://")
	if !ok {
		miss(w.T, "the engine at %s is on another machine: servers are given its socket", w.API.DaemonHost())
	}
	return path
}

// groupOf returns the group of a file.
func groupOf(w *World, path string) int {
	w.Helper()
	info, err := os.Stat(path)
	w.Must(err)
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		w.Fatalf("this system tells no group of %s", path)
	}
	return int(stat.Gid)
}
