package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/httpapi"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// shards is two shards with one group, and counts what changes.
type shards struct {
	httpapi.Service // of what is not called here
	changes         int
}

func (s *shards) ShardStatus(_ context.Context, of []client.Shard) (all []admin.ShardStatus, err error) {
	for _, x := range of {
		all = append(all, admin.ShardStatus{Shard: x.ID, GetShardStatusResponse: &nstancev1.GetShardStatusResponse{}})
	}
	return all, nil
}

func (s *shards) ConfigStatus(_ context.Context, of []client.Shard) (all []admin.ConfigStatus, err error) {
	for _, x := range of {
		all = append(all, admin.ConfigStatus{Shard: x.ID, GetConfigStatusResponse: &nstancev1.GetConfigStatusResponse{}})
	}
	return all, nil
}

func (s *shards) PreviewConfig(_ context.Context, of []client.Shard, _ []byte) (all []admin.Preview, err error) {
	for _, x := range of {
		all = append(all, admin.Preview{Shard: x.ID, PreviewConfigResponse: &nstancev1.PreviewConfigResponse{}})
	}
	return all, nil
}

func (s *shards) RefreshConfig(
	_ context.Context, of []client.Shard, _ []string, _ func([]admin.Refresh) error,
) (all []admin.Refresh, err error) {
	s.changes++
	for _, x := range of {
		all = append(all, admin.Refresh{Shard: x.ID, Outcome: admin.RefreshUpdated})
	}
	return all, nil
}

func (s *shards) ListGroups(_ context.Context, of []client.Shard, _ client.Parts) (all []admin.Group, err error) {
	for _, x := range of {
		all = append(all, admin.Group{Shard: x.ID, GroupStatus: &nstancev1.GroupStatus{Key: "web", Size: 1, Etag: "1-a"}})
	}
	return all, nil
}

func (s *shards) GroupStatus(ctx context.Context, of []client.Shard, key string) ([]admin.Group, error) {
	if key != "web" {
		return nil, fmt.Errorf("group %q: %w (have: web)", key, admin.ErrNoGroup)
	}
	return s.ListGroups(ctx, of, client.Parts{})
}

func (s *shards) UpsertGroup(ctx context.Context, of []client.Shard, req *nstancev1.UpsertGroupRequest) ([]admin.Group, error) {
	if req.GetSize() > 100 {
		return nil, &client.ShardError{Shard: of[0].ID, Err: rpc.Status(rpc.InvalidField("size", "too large: want at most 100"))}
	}
	s.changes++
	return s.ListGroups(ctx, of, client.Parts{})
}

func (s *shards) AbortRollout(ctx context.Context, of []client.Shard, _ string, _ *string) ([]admin.Group, error) {
	s.changes++
	return s.ListGroups(ctx, of, client.Parts{})
}

func (s *shards) RetryRollout(ctx context.Context, of []client.Shard, _ string, _ *string) ([]admin.Group, error) {
	s.changes++
	return s.ListGroups(ctx, of, client.Parts{})
}

func (s *shards) DeleteGroup(_ context.Context, of []client.Shard, _ string, _ bool) (all []string, err error) {
	s.changes++
	for _, x := range of {
		all = append(all, x.ID)
	}
	return all, nil
}

func (s *shards) Counted(context.Context, []client.Shard, string, bool) (map[string][]string, error) {
	return map[string][]string{"one/web": {"knd01m7y19apkenaskp9fvc72c4st"}}, nil
}

func (s *shards) ListInstances(context.Context, []client.Shard, string, bool) ([]admin.Instance, error) {
	return []admin.Instance{{Shard: "one", InstanceStatus: &nstancev1.InstanceStatus{}}}, nil
}

func (s *shards) InstanceStatus(_ context.Context, of []client.Shard, id string) (admin.Instance, error) {
	return admin.Instance{Shard: of[0].ID, InstanceStatus: &nstancev1.InstanceStatus{Id: id}}, nil
}

func (s *shards) CreateInstance(_ context.Context, of client.Shard, _ *nstancev1.CreateInstanceRequest) (admin.Instance, error) {
	s.changes++
	return admin.Instance{Shard: of.ID, InstanceStatus: &nstancev1.InstanceStatus{}}, nil
}

func (s *shards) DeleteInstance(_ context.Context, of []client.Shard, _ string) (string, error) {
	s.changes++
	return of[0].ID, nil
}

func (s *shards) AcknowledgeDrained(_ context.Context, of []client.Shard, _ string) (string, error) {
	s.changes++
	return of[0].ID, nil
}

func tokenFile(tb testing.TB, token string) *httpapi.Tokens {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		tb.Fatal(err)
	}
	t, err := httpapi.OpenTokens(path)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

const (
	full     = "a-token-that-may-do-everything"
	readOnly = "a-token-that-may-only-look-on"
)

// FuzzRequest: each request has an answer that is JSON, or a problem with its status; only one
// with the right token, Host and Content-Type changes anything.
func FuzzRequest(f *testing.F) {
	state := &shards{}
	api, err := httpapi.New(httpapi.Config{
		Service: state, Shards: []client.Shard{{ID: "one"}, {ID: "two"}}, Version: "v0-test", Hosts: httpapi.Hosts("127.0.0.1:0"),
		Access: httpapi.Access{Full: tokenFile(f, full), ReadOnly: tokenFile(f, readOnly)}, Timeout: time.Minute, Boot: "b",
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(api.Close)
	for _, path := range []string{
		"/health", "/groups", "/groups?shard=one&all_shards=true", "/groups/web?yes=true", "/groups/%2e%2e", "/config/status?shard=x",
		"/instances?group=web",
		"/instances/knd01m7y19apkenaskp9fvc72c4st", "/instances/knd01m7y19apkenaskp9fvc72c4st/drain",
		"/openapi.json", "/docs", "//groups", "/", "*",
	} {
		f.Add("GET", path, "localhost", full, "", "", "")
		f.Add("DELETE", path, "localhost:8080", readOnly, "", "", "")
		f.Add("POST", path, "[::1]", full, "application/json", `"1-a"`, `{}`)
	}
	for _, body := range []string{
		`{"group": "web", "size": 3}`, `{"group": "web", "size": 0}`, `{"group": "web", "size": 1e99}`, `{"group": "web", "size": 101}`,
		`null`, `[`, "\xff",
		`{"accept_removals": ["default/web"]}`, `{"group": "web", "key": "k", "vars": {"a": [null, {"b": 1}]}}`,
	} {
		for _, path := range []string{
			"/group/scale?shard=one", "/config/refresh?shard=one", "/config/diff?shard=one", "/instances?shard=two", "/groups/web?all_shards=true",
		} {
			f.Add("POST", path, "localhost", full, "application/json; charset=utf-8", `"1-a"`, body)
			f.Add("PUT", path, "127.0.0.1", full, "application/json", "", body)
		}
	}
	f.Fuzz(func(t *testing.T, method, path, host, token, media, match, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://x", strings.NewReader(body))
		if err != nil {
			return // no request of this method exists
		}
		u, err := r.URL.Parse(path)
		if err != nil || strings.HasPrefix(u.Path, "/events") {
			return
		}
		r.URL, r.Host, r.RemoteAddr = u, host, "127.0.0.1:9"
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", media)
		if match != "" {
			r.Header.Set("If-Match", match)
		}
		before := state.changes
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		check(t, w, r)
		changed := state.changes != before
		if may := token == full && strings.HasPrefix(media, "application/json") || method == http.MethodDelete && token == full; changed && !may {
			t.Errorf("%s %s with %q as %q has changed something", method, path, token, media)
		}
		if changed && (method == http.MethodGet || method == http.MethodHead || w.Code >= 300) {
			t.Errorf("%s %s with status %d has changed something", method, path, w.Code)
		}
	})
}

// check checks that an answer is what its status says.
func check(t *testing.T, w *httptest.ResponseRecorder, r *http.Request) {
	t.Helper()
	media := w.Header().Get("Content-Type")
	switch {
	case w.Code >= 300 && w.Code < 400: // a path that is not clean, or a config that has not changed
	case w.Code >= 500:
		t.Errorf("%s %s: status %d: %s", r.Method, r.URL, w.Code, w.Body)
	case w.Code >= 400:
		var p httpapi.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Detail == "" || media != "application/problem+json" {
			t.Errorf("%s %s: status %d is no problem: %s of type %s, %v", r.Method, r.URL, w.Code, w.Body, media, err)
		}
	case media == "application/json":
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %s", r.Method, r.URL, w.Body)
		}
	}
}
