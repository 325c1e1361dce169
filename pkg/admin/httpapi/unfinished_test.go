package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/httpapi"
	"github.com/nstance/nstance/pkg/client"
)

// WatchState has no events.
func (s *shards) WatchState(ctx context.Context, _ []client.Shard, _ []string, _ func(admin.Event) error) error {
	<-ctx.Done()
	return nil
}

// served serves an API in the simulated time of a test, whose end it must be able to do at once.
func served(t *testing.T, state *shards) *bufconn.Listener {
	t.Helper()
	return servedTo(t, state, httpapi.Access{Full: tokenFile(t, full), ReadOnly: tokenFile(t, readOnly)})
}

func servedTo(t *testing.T, service httpapi.Service, access httpapi.Access) *bufconn.Listener {
	t.Helper()
	api, err := httpapi.New(httpapi.Config{
		Service: service, Shards: []client.Shard{{ID: "one"}}, Version: "v0-test", Hosts: httpapi.Hosts("127.0.0.1:0"),
		Access: access, Timeout: 30 * time.Second, Boot: "b",
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(64 << 10)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- api.Serve(ctx, &httpapi.Listener{Listener: l}) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l
}

// begin sends the beginning of a request. It returns the status of the answer, 0 without one, when
// it came, and when the connection was closed, if not after minutes.
func begin(t *testing.T, l *bufconn.Listener, request string) (status int, answered, closed time.Duration) {
	t.Helper()
	conn, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	if err := conn.SetReadDeadline(began.Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0, 0, time.Since(began)
	}
	defer answer.Body.Close()
	answered = time.Since(began)
	_, _ = io.Copy(io.Discard, io.MultiReader(answer.Body, in)) // until it is closed
	return answer.StatusCode, answered, time.Since(began)
}

// TestUnfinishedRequests: a request whose header or body never ends is ended. Refusals do not wait
// for the body.
func TestUnfinishedRequests(t *testing.T) {
	const (
		host        = " HTTP/1.1\r\nHost: localhost\r\n"
		all, reads  = "Authorization: Bearer " + full + "\r\n", "Authorization: Bearer " + readOnly + "\r\n"
		length      = "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
		chunks      = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{"
		soon, later = 2 * time.Second, 6 * time.Second
	)
	for name, c := range map[string]struct {
		request          string
		want             int           // 0: the connection is closed without an answer
		answered, closed time.Duration // at most
	}{
		"a header":                   {"GET /groups" + host + all, 0, 0, 10 * time.Second},
		"without a token":            {"POST /group/scale?shard=one" + host + length, 401, 0, soon},
		"in chunks, without a token": {"POST /group/scale?shard=one" + host + chunks, 401, 0, soon},
		"a read, without a token":    {"GET /groups" + host + length, 401, 0, soon},
		"another token":              {"PUT /groups/web" + host + "Authorization: Bearer another-that-is-long\r\n" + length, 401, 0, soon},
		"a token that may only read": {"POST /group/scale?shard=one" + host + reads + length, 403, 0, soon},
		"another host":               {"POST /group/scale HTTP/1.1\r\nHost: evil.example\r\n" + all + length, 421, 0, soon},
		"another method, public":     {"POST /health" + host + length, 405, 0, soon},
		"another path":               {"POST /nothing" + host + all + length, 404, 0, soon},
		"a change":                   {"POST /group/scale?shard=one" + host + all + length, 408, later, later + soon},
		"a change, in chunks":        {"POST /group/scale?shard=one" + host + all + chunks, 408, later, later + soon},
		"a read with a body":         {"GET /groups" + host + all + length, 200, 0, soon},
		"a public page with a body":  {"GET /docs" + host + length, 200, 0, soon},
		"a stream of events goes on": {"GET /events" + host + all + length, 200, 0, 3 * time.Minute},
		"events, without a token":    {"GET /events" + host + chunks, 401, 0, soon},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state := &shards{}
				got, answered, closed := begin(t, served(t, state), c.request)
				if got != c.want || answered > c.answered || closed > c.closed {
					t.Errorf("%d after %s, closed after %s; want %d within %s, and %s", got, answered, closed, c.want, c.answered, c.closed)
				}
				if state.changes > 0 {
					t.Error("something was changed")
				}
			})
		})
	}
}
