package spot_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/nstance/nstance/pkg/agent/spot"
	"github.com/nstance/nstance/pkg/fleet"
)

const metadataAddr = "169.254.169.254:80"

// metadata is a cloud's metadata service: it requires tokens like AWS, or the header like
// Google, and modifies its responses as a test demands.
type metadata struct {
	cloud    string        // aws | gcp
	interval time.Duration // of the watch

	mu       sync.Mutex
	listener *bufconn.Listener // nil: there is none
	values   map[string]string // by path below the cloud's root
	spoil    func(w http.ResponseWriter, r *http.Request) (answered bool)
	tokens   map[string]time.Time // with their expiry
	issued   int
	asked    []string // "GET /path", in order
	dials    []string // addresses
	denied   int      // requests without a valid token or header
}

func newMetadata(cloud string) *metadata {
	return &metadata{cloud: cloud, interval: 2 * time.Second, values: map[string]string{}, tokens: map[string]time.Time{}}
}

// up starts the service.
func (m *metadata) up(t *testing.T) *metadata {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	m.change(func() { m.listener = listener })
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Close(); serving.Wait() })
	return m
}

func (m *metadata) change(f func()) { m.mu.Lock(); defer m.mu.Unlock(); f() }

func (m *metadata) set(path, value string) { m.change(func() { m.values[path] = value }) }

func (m *metadata) dial(ctx context.Context, addr string) (net.Conn, error) {
	m.mu.Lock()
	m.dials = append(m.dials, addr)
	l := m.listener
	m.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: no route to host", addr)
	}
	return l.DialContext(ctx)
}

// ServeHTTP implements http.Handler.
func (m *metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.asked = append(m.asked, r.Method+" "+r.URL.Path)
	spoil := m.spoil
	m.mu.Unlock()
	if spoil != nil && spoil(w, r) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cloud == "aws" {
		m.aws(w, r)
	} else {
		m.gcp(w, r)
	}
}

func (m *metadata) aws(w http.ResponseWriter, r *http.Request) {
	const ttl = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	if r.URL.Path == "/latest/api/token" {
		seconds, err := strconv.Atoi(r.Header.Get(ttl))
		if r.Method != http.MethodPut || err != nil || seconds < 1 || seconds > 21600 || r.Header.Get("X-Forwarded-For") != "" {
			http.Error(w, "bad", http.StatusBadRequest)
			return
		}
		m.issued++
		token := fmt.Sprintf("token-%d==", m.issued)
		m.tokens[token] = time.Now().Add(time.Duration(seconds) * time.Second)
		w.Header().Set(ttl, strconv.Itoa(seconds))
		io.WriteString(w, token)
		return
	}
	if end, ok := m.tokens[r.Header.Get("X-Aws-Ec2-Metadata-Token")]; !ok || !time.Now().Before(end) {
		m.denied++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	m.value(w, strings.TrimPrefix(r.URL.Path, "/latest/meta-data/"))
}

func (m *metadata) gcp(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Metadata-Flavor") != "Google" {
		m.denied++
		w.WriteHeader(http.StatusForbidden)
		return
	}
	w.Header().Set("Metadata-Flavor", "Google")
	m.value(w, strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/instance/"))
}

func (m *metadata) value(w http.ResponseWriter, path string) {
	value, ok := m.values[path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	io.WriteString(w, value)
}

func (m *metadata) requests() int { m.mu.Lock(); defer m.mu.Unlock(); return len(m.asked) }

// watching is a running watch.
type watching struct {
	t    *testing.T
	stop context.CancelFunc
	done chan struct{}
	log  strings.Builder // read only while the bubble is idle

	mu      sync.Mutex
	notices []fleet.Notice
}

func (m *metadata) watch(t *testing.T, provider string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{t: t, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		spot.Watch(ctx, spot.Config{
			Provider: provider, Interval: m.interval, Dialer: m.dial, Now: time.Now,
			Logger: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
			Noticed: func(n fleet.Notice) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.notices = append(w.notices, n)
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-w.done:
		case <-time.After(time.Hour): // of simulated time; a polling watch would never end
			t.Error("the watch does not end")
		}
	})
	return w
}

func (w *watching) seen() []fleet.Notice {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]fleet.Notice(nil), w.notices...)
}

// over reports whether the watch has ended by itself.
func (w *watching) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// settle waits for d, and for everything that follows.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *watching) warnings() int { return strings.Count(w.log.String(), "level=WARN") }
