package httpapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/httpapi"
	"github.com/nstance/nstance/pkg/client"
)

// audited is an API with its log.
type audited struct {
	t   *testing.T
	api *httpapi.API
	log bytes.Buffer
	now time.Time
}

// failing is shards whose instances can't be deleted.
type failing struct {
	shards
	err error
}

func (f *failing) DeleteInstance(context.Context, []client.Shard, string) (string, error) {
	return "", f.err
}

func newAudited(t *testing.T, service httpapi.Service) *audited {
	t.Helper()
	a := &audited{t: t, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	var err error
	a.api, err = httpapi.New(httpapi.Config{
		Service: service, Shards: []client.Shard{{ID: "one"}, {ID: "two"}}, Version: "v0-test", Hosts: httpapi.Hosts("127.0.0.1:0"),
		Access: httpapi.Access{Full: tokenFile(t, full), ReadOnly: tokenFile(t, readOnly)}, Timeout: time.Minute, Boot: "b",
		Now: func() time.Time { return a.now }, Logger: slog.New(slog.NewJSONHandler(&a.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.api.Close)
	return a
}

// call makes a request with JSON, and returns its status and the lines of the log about it.
func (a *audited) call(request, token, body string, edits ...func(*http.Request)) (code int, lines []map[string]any) {
	a.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r := httptest.NewRequestWithContext(a.t.Context(), method, path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "localhost", "10.0.0.7:9"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	for _, edit := range edits {
		edit(r)
	}
	w := httptest.NewRecorder()
	a.api.ServeHTTP(w, r)
	if text := a.log.String(); strings.Contains(text, full) || strings.Contains(text, readOnly) || strings.Contains(text, "a-wrong-token") {
		a.t.Errorf("the log has a token: %s", text)
	}
	for line := range strings.Lines(a.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			a.t.Fatal(err)
		}
		lines = append(lines, fields)
	}
	a.log.Reset()
	return w.Code, lines
}

// TestAudit: refusals and changes have a line with the caller's role, the request without its query,
// the source and the reason; what only reads has none.
func TestAudit(t *testing.T) {
	const scale = "POST /group/scale?shard=one"
	const bigger, wrong = `{"group": "web", "size": 3}`, "a-wrong-token-of-some-length"
	const none, fullRole, readRole = "none", "full token", "read-only token"
	from := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(r *http.Request) { r.Host = "evil.example" }
	for _, tt := range []struct {
		request, token, body string
		edit                 func(*http.Request)
		status               int
		line                 string // message, kind, caller, method, object, reason; empty: none
	}{
		{"GET /groups?x=" + wrong, wrong, "", nil, 401, "refused a call|call|" + none + "|GET /groups|<nil>|the token is not valid"},
		{"GET /groups", full, "", from("Authorization", ""), 401, "refused a call|call|" + none + "|GET /groups|<nil>|a token is required"},
		{"GET /groups", full, "", host, 421, `refused a call|call|` + none + `|GET /groups|<nil>|Host: "evil.example" is not a name`},
		{"GET /health", full, "", host, 421, `refused a call|call|` + none + `|GET /health|<nil>|Host: "evil.example"`},
		{scale, full, bigger, host, 421, `refused a call|change|` + none + `|POST /group/scale|<nil>|Host: "evil.example"`},
		{scale, wrong, bigger, nil, 401, "refused a call|change|" + none + "|POST /group/scale|<nil>|the token is not valid"},
		{scale, readOnly, bigger, nil, 403, "refused a call|change|" + readRole + "|POST /group/scale|<nil>|the token is read-only"},
		{
			scale, full, bigger, from("Origin", "http://evil.example"), 403,
			`refused a call|change|` + fullRole + `|POST /group/scale|<nil>|Origin: "http://evil.example"`,
		},
		{
			scale, full, bigger, from("Content-Type", "text/plain"), 415,
			"refused a call|change|" + fullRole + "|POST /group/scale|<nil>|Content-Type",
		},
		{scale, full, bigger, nil, 200, "accepted a change|change|" + fullRole + "|POST /group/scale|shard one|<nil>"},
		{
			"POST /config/refresh?all_shards=true", full, "{}", nil, 200,
			"accepted a change|change|" + fullRole + "|POST /config/refresh|all shards|<nil>",
		},
		{
			scale, full, `{"group": "web", "size": 101}`, nil, 400,
			"refused a call|change|" + fullRole + "|POST /group/scale|shard one|shard one: invalid request: size: too large: want at most 100",
		},
		{
			scale, full, `{"group": 1}`, nil, 400,
			"refused a call|change|" + fullRole + "|POST /group/scale|shard one|validation failed; body.group: expected string",
		},
		{"POST /nothing", full, "{}", nil, 404, "refused a call|change|" + fullRole + "|POST /nothing|<nil>|"},
		{"PUT /config/diff", full, "{}", nil, 405, "refused a call|change|" + fullRole + "|PUT /config/diff|<nil>|"},
		{"POST /health", full, "{}", nil, 405, "refused a call|change|" + none + "|POST /health|<nil>|"},
		{"GET /groups", readOnly, "", nil, 200, ""},
		{"GET /groups/none", full, "", nil, 404, ""},
		{"GET /health", wrong, "", nil, 200, ""},
		{"POST /config/diff?shard=one", full, `{"text": "{}"}`, nil, 200, ""},
	} {
		a := newAudited(t, &shards{})
		edits := []func(*http.Request){}
		if tt.edit != nil {
			edits = append(edits, tt.edit)
		}
		code, lines := a.call(tt.request, tt.token, tt.body, edits...)
		if code != tt.status {
			t.Errorf("%s: status %d, want %d", tt.request, code, tt.status)
		}
		if tt.line == "" {
			if len(lines) != 0 {
				t.Errorf("%s: %v, want no line", tt.request, lines)
			}
			continue
		}
		if len(lines) != 1 || lines[0]["from"] != "10.0.0.7:9" {
			t.Errorf("%s: %v, want one line with its source", tt.request, lines)
			continue
		}
		var got []string
		for _, field := range []string{"msg", "audit", "caller", "method", "object", "reason"} {
			got = append(got, fmt.Sprint(lines[0][field]))
		}
		line := strings.Join(got, "|")
		unexplained := lines[0]["reason"] == nil && lines[0]["msg"] != "accepted a change"
		if !strings.HasPrefix(line, tt.line) || unexplained {
			t.Errorf("%s: %s, want %s", tt.request, line, tt.line)
		}
	}
}

// TestAuditOfFailures: what failed has failed, and what may have been carried out is told as that.
func TestAuditOfFailures(t *testing.T) {
	late := &client.ShardError{Shard: "one", Err: status.Error(codes.DeadlineExceeded, "too late")}
	broken := &client.ShardError{Shard: "two", Err: status.Error(codes.Internal, "broken")}
	const deletion = "DELETE /instances/knd01m7y19apkenaskp9fvc72c4st"
	for message, tt := range map[string]struct {
		err   error
		edits []func(*http.Request)
	}{
		"a call failed":                      {err: broken},
		"a change may have been carried out": {err: late},
		"refused a call":                     {err: fmt.Errorf("group x: %w", admin.ErrNoGroup)},
	} {
		code, lines := newAudited(t, &failing{err: tt.err}).call(deletion, full, "")
		if len(lines) != 1 || lines[0]["msg"] != message || lines[0]["reason"] == nil {
			t.Errorf("%v: status %d, %v, want one line %q with its reason", tt.err, code, lines, message)
		}
	}
	lost := &client.ShardError{Shard: "two", Err: status.Error(codes.Unavailable, "the connection broke")}
	if _, lines := newAudited(t, &failing{err: lost}).call(deletion, full, ""); len(lines) != 1 ||
		lines[0]["msg"] != "a change may have been carried out" {
		t.Errorf("%v, want one line that says that the outcome is unknown", lines)
	}
	leaves := func(r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		*r = *r.WithContext(ctx)
	}
	canceled := &client.ShardError{Shard: "one", Err: status.Error(codes.Canceled, "canceled")}
	_, lines := newAudited(t, &failing{err: canceled}).call(deletion, full, "", leaves)
	if len(lines) != 1 || lines[0]["msg"] != "a change may have been carried out" {
		t.Errorf("the caller left: %v, want one line that says that the outcome is unknown", lines)
	}
}

// TestAuditOfCertificate: the subject of a client's certificate is told.
func TestAuditOfCertificate(t *testing.T) {
	_, lines := newAudited(t, &shards{}).call("POST /group/scale?shard=one", full, `{"group": "web", "size": 3}`, func(r *http.Request) {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "ops-1"}}}}
	})
	if len(lines) != 1 || fmt.Sprint(lines[0]["claims"]) != "map[certificate:CN=ops-1]" {
		t.Errorf("%v, want one line with the certificate's subject", lines)
	}
}

// TestFloodOfRefusals: a source has few lines, and the next one says how many were left out; changes
// still have theirs.
func TestFloodOfRefusals(t *testing.T) {
	a := newAudited(t, &shards{})
	told := 0
	for range 1000 {
		_, lines := a.call("GET /groups", "a-wrong-token-of-some-length", "")
		told += len(lines)
	}
	if told != 20 {
		t.Errorf("1,000 refusals left %d lines, want 20", told)
	}
	if _, lines := a.call("POST /group/scale?shard=one", full, `{"group": "web", "size": 3}`); len(lines) != 1 {
		t.Errorf("a change of the same source left %v, want one line", lines)
	}
	a.now = a.now.Add(time.Minute)
	if _, lines := a.call("GET /groups", "", ""); len(lines) != 1 || lines[0]["left_out"] != 980.0 {
		t.Errorf("after a pause there is %v, want one line with 980 left out", lines)
	}
}
