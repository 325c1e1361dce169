package agent_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// metadataService is the metadata service of an AWS spot instance; it serves action as the
// notice, if set.
func (f *fixture) metadataService() (action *atomic.Pointer[string]) {
	f.t.Helper()
	action = &atomic.Pointer[string]{}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "t") })
	mux.HandleFunc("GET /latest/meta-data/instance-life-cycle", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "spot") })
	mux.HandleFunc("GET /latest/meta-data/spot/instance-action", func(w http.ResponseWriter, r *http.Request) {
		if a := action.Load(); a != nil && r.Header.Get("X-aws-ec2-metadata-token") == "t" {
			fmt.Fprint(w, *a)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
	listener, server, done := bufconn.Listen(64<<10), &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}, make(chan struct{})
	f.mu.Lock()
	f.listeners["169.254.169.254:80"] = listener
	f.mu.Unlock()
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			f.t.Errorf("serve metadata: %v", err)
		}
	}()
	f.t.Cleanup(func() { server.Close(); <-done })
	return action
}

// TestNotice: a notice is reported at once, and in every later report.
func TestNotice(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server, action := f.up("10.0.0.1"), f.metadataService()
		c := f.config()
		c.Provider, c.SpotPollInterval = "auto", 2*time.Second
		p := f.start(c)
		settle(time.Minute + 11*time.Second)
		end := time.Now().Add(2 * time.Minute).Truncate(time.Second)
		said := `{"action":"terminate","time":"` + end.UTC().Format(time.RFC3339) + `"}`
		action.Store(&said)
		settle(2 * time.Second)
		got := server.seen().reports
		if len(got) != 3 || got[1].GetTermination() != nil {
			t.Fatalf("%d reports, want one as soon as the notice was there: %v", len(got), got)
		}
		n := got[2].GetTermination()
		if n.GetSource() != "aws-spot" || n.GetAction() != "terminate" || !n.GetAt().AsTime().Equal(end) {
			t.Errorf("reported %v, want the end at %s", n, end)
		}
		settle(time.Minute)
		server.down()
		settle(5 * time.Second)
		server.start()
		settle(10 * time.Second)
		p.end()
		got = server.seen().reports
		if len(got) < 6 {
			t.Errorf("%d reports", len(got))
		}
		for _, r := range got[2:] {
			if r.GetTermination().GetSource() != "aws-spot" {
				t.Errorf("a later report says %v of the end", r.GetTermination())
			}
		}
	})
}

// TestNoticeBeforeTheServer: a notice from before the connection is in the first report.
func TestNoticeBeforeTheServer(t *testing.T) {
	withFixture(t, func(f *fixture) {
		action := f.metadataService()
		said := `{"action":"stop"}`
		action.Store(&said)
		c := f.config()
		c.Provider, c.SpotPollInterval = "aws", time.Second
		p := f.start(c)
		settle(10 * time.Second)
		server := f.up("10.0.0.1")
		settle(20 * time.Second)
		p.end()
		got := server.seen().reports
		if len(got) != 2 || got[0].GetTermination().GetAction() != "stop" || got[0].GetTermination().GetAt() != nil ||
			!strings.HasPrefix(got[1].GetTermination().GetSource(), "aws") {
			t.Errorf("reports %v", got)
		}
	})
}
