package docker_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
)

// fakeEngine is an engine with scripted responses, chosen by a request's method and the end of
// its path. It records the calls.
type fakeEngine struct {
	mu        sync.Mutex
	calls     []string
	bodies    map[string]string // the last body or query of each call
	responses map[string]response
	during    func(call string) // runs before the response, if not nil
}

type response struct {
	status  int
	message string
}

func (w *fakeEngine) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Api-Version", "1.41")
	if strings.HasSuffix(r.URL.Path, "/_ping") {
		return
	}
	_, path, _ := strings.Cut(r.URL.Path, "/v1.41/")
	parts := strings.Split(path, "/")
	call := r.Method + " " + parts[len(parts)-1]
	switch {
	case parts[0] == "images":
		call = r.Method + " image " + parts[len(parts)-1]
	case r.Method == http.MethodDelete:
		call = "DELETE"
	}
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.calls = append(w.calls, call)
	w.bodies[call] = cmp.Or(string(body), r.URL.RawQuery)
	a, ok := w.responses[call]
	w.mu.Unlock()
	if w.during != nil {
		w.during(call)
	}
	if !ok {
		a = response{http.StatusNotFound, "no such container"}
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(a.status)
	if a.status >= http.StatusBadRequest {
		_ = json.NewEncoder(rw).Encode(map[string]string{"message": a.message})
		return
	}
	fmt.Fprint(rw, a.message)
}

// openFake opens a provider on a fake engine with these responses.
func openFake(t testing.TB, responses map[string]response) (*docker.Provider, *fakeEngine) {
	t.Helper()
	host, w := serveFake(t, responses)
	return openHost(t, host), w
}

func serveFake(t testing.TB, responses map[string]response) (host string, w *fakeEngine) {
	w = &fakeEngine{responses: responses, bodies: map[string]string{}}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	return "tcp://" + strings.TrimPrefix(server.URL, "http://"), w
}

func openHost(t testing.TB, host string) *docker.Provider {
	t.Helper()
	return openOptions(t, map[string]any{"host": host, "image": "agent:1"})
}

func testScope() provider.Scope { return provider.Scope{ClusterID: "c", Shard: "s"} }

// created returns the engine's response about a container that was never started.
func created(t *testing.T, spec provider.Spec) response {
	t.Helper()
	return response{http.StatusOK, encode(t, map[string]any{
		"Id": strings.Repeat("a", 64), "State": map[string]any{"Status": "created"}, "Config": map[string]any{"Labels": spec.Tags},
	})}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReasonOfStoppedContainer: Get, List and Watch return as much of the reason as the engine
// reports.
func TestReasonOfStoppedContainer(t *testing.T) {
	spec := newSpec(t, testScope(), nil)
	id := strings.Repeat("a", 64)
	event := func(action, exitCode string) string {
		attributes := map[string]string{}
		maps.Copy(attributes, spec.Tags)
		if exitCode != "" {
			attributes["exitCode"] = exitCode
		}
		return encode(t, map[string]any{"Type": "container", "Action": action, "Actor": map[string]any{"ID": id, "Attributes": attributes}})
	}
	p, _ := openFake(t, map[string]response{
		"GET json": {200, encode(t, map[string]any{
			"Id":     id,
			"State":  map[string]any{"Status": "exited", "ExitCode": 137, "OOMKilled": true, "Error": "no space"},
			"Config": map[string]any{"Labels": spec.Tags},
		})},
	})
	vm, err := provider.GetOne(t.Context(), p, provider.Ref{ID: spec.ID, ProviderID: id})
	if err != nil || vm.Reason != "exit code 137, out of memory: no space" {
		t.Errorf("get: %q, %v", vm.Reason, err)
	}
	var events []string
	watched, _ := openFake(t, map[string]response{
		"GET info": {200, `{"SystemTime":"2026-11-23T10:00:00.5+01:00"}`}, "GET json": {200, "[]"},
		"GET events": {200, event("start", "") + event("oom", "") + event("die", "137") + event("start", "") + event("die", "1")},
	})
	_ = watched.Watch(t.Context(), func(e provider.Event) { // its error is the end of the stream
		events = append(events, string(e.VM.State)+": "+e.VM.Reason)
	})
	want := []string{"running: ", "stopped: exit code 137, out of memory", "running: ", "stopped: exit code 1"}
	if !slices.Equal(events, want) {
		t.Errorf("events: %q, want %q", events, want)
	}
	listed, _ := openFake(t, map[string]response{"GET json": {200, encode(t, []map[string]any{
		{"Id": id, "State": "exited", "Status": "Exited (2) About an hour ago", "Labels": spec.Tags},
	})}})
	if vms, err := listed.List(t.Context()); err != nil || len(vms) != 1 || vms[0].Reason != "exit code 2" {
		t.Errorf("list: %+v, %v", vms, err)
	}
}

func TestCreateErrors(t *testing.T) {
	for name, c := range map[string]struct {
		response response
		want     error // nil: temporary, with an unknown outcome
		message  string
	}{
		"no image":       {response{404, "No such image: agent:1"}, provider.ErrInvalid, "build or load the image agent:1"},
		"bad parameter":  {response{400, "invalid hostname"}, provider.ErrInvalid, "invalid hostname"},
		"forbidden":      {response{403, "authorization denied by plugin"}, provider.ErrUnauthorized, "denied"},
		"full disk":      {response{500, "write /var/lib: no space left on device"}, provider.ErrQuota, "no space"},
		"throttled":      {response{429, "slow down"}, provider.ErrThrottled, "slow down"},
		"internal":       {response{500, "server misbehaving"}, nil, "misbehaving"},
		"being replaced": {response{503, "engine is stopping"}, nil, "stopping"},
	} {
		p, w := openFake(t, map[string]response{"POST create": c.response})
		_, err := p.Create(t.Context(), newSpec(t, testScope(), nil))
		if err == nil || provider.Definite(err) != (c.want != nil) || (c.want != nil && !errors.Is(err, c.want)) ||
			!strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if n := countCalls(w, "POST create"); n != 1 {
			t.Errorf("%s: %d creates were sent", name, n)
		}
	}
}

// TestReadErrors: throttling and missing permissions are reported as such by all reads and by
// deletes.
func TestReadErrors(t *testing.T) {
	for name, c := range map[string]struct {
		response response
		want     error
	}{
		"throttled": {response{429, "slow down"}, provider.ErrThrottled},
		"forbidden": {response{403, "authorization denied by plugin"}, provider.ErrUnauthorized},
	} {
		p, _ := openFake(t, map[string]response{"GET json": c.response})
		ref := provider.Ref{ProviderID: strings.Repeat("a", 64)}
		_, err := p.List(t.Context())
		for what, err := range map[string]error{
			"list": err, "get": p.Get(t.Context(), []provider.Ref{ref})[0].Err, "delete": p.Delete(t.Context(), []provider.Ref{ref})[0],
		} {
			if !errors.Is(err, c.want) {
				t.Errorf("%s, %s: %v, want %v", name, what, err, c.want)
			}
		}
	}
}

// TestStartErrors: a permanent error of a start removes the container; a temporary one leaves
// it for the next create.
func TestStartErrors(t *testing.T) {
	for name, c := range map[string]struct {
		start, remove response
		want          error
		removes       int
	}{
		"no program":       {response{400, "exec: nstance-agent: not found"}, response{204, ""}, provider.ErrInvalid, 1},
		"no network":       {response{404, "network x not found"}, response{204, ""}, provider.ErrInvalid, 1},
		"network is full":  {response{500, "no available IPv4 addresses on this network"}, response{204, ""}, provider.ErrSubnetFull, 1},
		"can't be removed": {response{400, "exec: nstance-agent: not found"}, response{409, "container is running"}, nil, 1},
		"address in use":   {response{403, "Address already in use"}, response{204, ""}, nil, 0},
		"internal":         {response{500, "server misbehaving"}, response{204, ""}, nil, 0},
	} {
		spec := newSpec(t, testScope(), nil)
		p, w := openFake(t, map[string]response{
			"POST create": {201, `{"Id":"a"}`}, "GET json": created(t, spec), "PUT archive": {200, ""},
			"POST start": c.start, "DELETE": c.remove,
		})
		_, err := p.Create(t.Context(), spec)
		if err == nil || provider.Definite(err) != (c.want != nil) || (c.want != nil && !errors.Is(err, c.want)) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if n := countCalls(w, "DELETE"); n != c.removes {
			t.Errorf("%s: %d removals", name, n)
		}
	}
}

// TestCopyErrors: a full disk removes the container; after another error the next create
// retries the copy.
func TestCopyErrors(t *testing.T) {
	for name, c := range map[string]struct {
		response response
		want     error
		removes  int
	}{
		"full disk": {response{500, "write /opt/nstance-agent/identity/ca.crt: no space left on device"}, provider.ErrQuota, 1},
		"internal":  {response{500, "server misbehaving"}, nil, 0},
		"not found": {response{404, "No such container"}, nil, 0},
	} {
		spec := newSpec(t, testScope(), nil)
		p, w := openFake(t, map[string]response{
			"POST create": {201, `{"Id":"a"}`}, "GET json": created(t, spec), "PUT archive": c.response, "DELETE": {204, ""},
		})
		_, err := p.Create(t.Context(), spec)
		if err == nil || provider.Definite(err) != (c.want != nil) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if n := countCalls(w, "DELETE"); n != c.removes || countCalls(w, "POST start") != 0 {
			t.Errorf("%s: %d removals, calls %v", name, n, w.calls)
		}
	}
}

// TestGuardBeforeRemoval: leadership ends before the container of a failed start is removed.
// The container stays, and the outcome is unknown.
func TestGuardBeforeRemoval(t *testing.T) {
	spec := newSpec(t, testScope(), nil)
	p, w := openFake(t, map[string]response{
		"POST create": {201, `{"Id":"a"}`}, "GET json": created(t, spec), "PUT archive": {200, ""},
		"POST start": {400, "exec: nstance-agent: not found"}, "DELETE": {204, ""},
	})
	refusal := errors.New("not the leader")
	ctx := provider.WithGuard(t.Context(), func(context.Context) error {
		if countCalls(w, "POST start") > 0 {
			return refusal
		}
		return nil
	})
	_, err := p.Create(ctx, spec)
	if !errors.Is(err, refusal) || provider.Definite(err) || !strings.Contains(err.Error(), "exec: nstance-agent") {
		t.Errorf("create: %v, want why it did not start, and no definite error", err)
	}
	if n := countCalls(w, "DELETE"); n != 0 {
		t.Errorf("%d removals after the end of leadership", n)
	}
}

// TestClose: Close may be called more than once.
func TestClose(t *testing.T) {
	p, _ := openFake(t, nil)
	p.Close()
	p.Close()
}

func TestUnreachable(t *testing.T) {
	p := openHost(t, "unix://"+filepath.Join(t.TempDir(), "no.sock"))
	spec := newSpec(t, testScope(), nil)
	_, createErr := p.Create(t.Context(), spec)
	_, getErr := provider.GetOne(t.Context(), p, provider.Ref{ID: spec.ID})
	_, listErr := p.List(t.Context())
	watchErr := p.Watch(t.Context(), func(provider.Event) {})
	deleteErr := provider.DeleteOne(t.Context(), p, provider.Ref{ID: spec.ID})
	for name, err := range map[string]error{
		"create": createErr, "get": getErr, "list": listErr, "watch": watchErr, "delete": deleteErr,
	} {
		if err == nil || provider.Definite(err) || errors.Is(err, provider.ErrNotFound) {
			t.Errorf("%s without an engine: %v, want a temporary error", name, err)
		}
	}
}

func countCalls(w *fakeEngine, call string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(w.calls), func(c string) bool { return c != call }))
}
