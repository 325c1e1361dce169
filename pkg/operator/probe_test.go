package operator_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/operator"
)

// TestProbe: a Service that leads nowhere yet is asked again, and one that never leads
// anywhere is told of as it refused.
func TestProbe(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	taken.Close()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := operator.Probe(short, "http://"+address+"/readyz", t.Output()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nothing listens: %v", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second}
	defer server.Close()
	time.AfterFunc(100*time.Millisecond, func() {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		_ = server.Serve(listener) // it ends with the server
	})
	if err := operator.Probe(t.Context(), "http://"+address+"/readyz", t.Output()); err != nil {
		t.Error(err)
	}
}

// TestProbeNotReady: an operator that is not ready yet is asked again, and one that never
// is says why; what is no answer of an operator's ends it at once.
func TestProbeNotReady(t *testing.T) {
	for name, c := range map[string]struct {
		statuses []int // of the answers, the last one of all further ones
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
				if n == c.asked && c.asked > 1 && c.want != "" { // with no answer it would have nothing to say
					defer time.AfterFunc(50*time.Millisecond, cancel)
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
