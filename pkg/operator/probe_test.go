package operator_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/operator"
)

// TestProbe: a Service without an endpoint is retried, and reported with the last error if it never
// gets one.
func TestProbe(t *testing.T) {
	address := freeAddr(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused(t, cancel)
	if err := operator.Probe(ctx, "http://"+address+"/readyz", t.Output()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nothing listens: %v", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Minute}
	defer server.Close()
	refused(t, func() {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		go func() { _ = server.Serve(listener) }() // it ends with the server
	})
	if err := operator.Probe(t.Context(), "http://"+address+"/readyz", t.Output()); err != nil {
		t.Error(err)
	}
}

// refused calls a function, once, after a failed request of the probe.
func refused(t *testing.T, then func()) {
	t.Helper()
	before, once := http.DefaultTransport, sync.OnceFunc(then)
	t.Cleanup(func() { http.DefaultTransport = before })
	http.DefaultTransport = roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := before.RoundTrip(r)
		if err != nil {
			once()
		}
		return answer, err
	})
}

// TestProbeNotReady: an operator that is not ready yet is retried, and the reason is reported if it
// never is; an answer that is not an operator's ends the probe at once.
func TestProbeNotReady(t *testing.T) {
	for name, c := range map[string]struct {
		statuses []int // the answers in order, the last one repeatedly
		asked    int
		want     string // in the error; "": there is none
	}{
		"registers meanwhile": {[]int{500, 503, 200}, 3, ""},
		"never ready":         {[]int{500}, 2, "answers 500 Internal Server Error: as told"},
		"another service":     {[]int{404}, 1, "answers 404 Not Found: as told: want 200"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n := int(asked.Add(1))
				if n == c.asked && c.asked > 1 && c.want != "" { // without an earlier answer there would be nothing to report
					cancel()
				}
				http.Error(w, "as told", c.statuses[min(n, len(c.statuses))-1])
			}))
			defer server.Close()
			err := operator.Probe(ctx, server.URL+"/readyz", t.Output())
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if n := int(asked.Load()); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
		})
	}
}
