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

// wire is an engine that answers by the script: what a request's method and path
// end in decides. It logs what it was asked for.
type wire struct {
	mu      sync.Mutex
	calls   []string
	bodies  map[string]string // the last one of each call
	answers map[string]answer
	during  func(call string) // nil: answers at once
}

type answer struct {
	status  int
	message string
}

func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
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
	a, ok := w.answers[call]
	w.mu.Unlock()
	if w.during != nil {
		w.during(call)
	}
	if !ok {
		a = answer{http.StatusNotFound, "no such container"}
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(a.status)
	if a.status >= http.StatusBadRequest {
		_ = json.NewEncoder(rw).Encode(map[string]string{"message": a.message})
		return
	}
	fmt.Fprint(rw, a.message)
}

// openWire opens a provider on an engine with these answers.
func openWire(t testing.TB, answers map[string]answer) (*docker.Provider, *wire) {
	t.Helper()
	host, w := serveWire(t, answers)
	return openHost(t, host), w
}

func serveWire(t testing.TB, answers map[string]answer) (host string, w *wire) {
	w = &wire{answers: answers, bodies: map[string]string{}}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	return "tcp://" + strings.TrimPrefix(server.URL, "http://"), w
}

func openHost(t testing.TB, host string) *docker.Provider {
	t.Helper()
	return openOptions(t, map[string]any{"host": host, "image": "agent:1"})
}

func wireScope() provider.Scope { return provider.Scope{ClusterID: "c", Shard: "s"} }

// created is how the engine describes a container that was never started.
func created(t *testing.T, spec provider.Spec) answer {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"Id": strings.Repeat("a", 64), "State": map[string]any{"Status": "created"}, "Config": map[string]any{"Labels": spec.Tags},
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer{http.StatusOK, string(body)}
}

// TestWhyAContainerStopped: a look at it, a list and the stream of events tell as much
// as the engine tells them.
func TestWhyAContainerStopped(t *testing.T) {
	spec := newSpec(t, wireScope(), nil)
	id := strings.Repeat("a", 64)
	encode := func(v any) string {
		t.Helper()
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	event := func(action, exitCode string) string {
		attributes := map[string]string{}
		maps.Copy(attributes, spec.Tags)
		if exitCode != "" {
			attributes["exitCode"] = exitCode
		}
		return encode(map[string]any{"Type": "container", "Action": action, "Actor": map[string]any{"ID": id, "Attributes": attributes}})
	}
	p, _ := openWire(t, map[string]answer{
		"GET json": {200, encode(map[string]any{
			"Id":     id,
			"State":  map[string]any{"Status": "exited", "ExitCode": 137, "OOMKilled": true, "Error": "no room"},
			"Config": map[string]any{"Labels": spec.Tags},
		})},
	})
	vm, err := provider.GetOne(t.Context(), p, provider.Ref{ID: spec.ID, ProviderID: id})
	if err != nil || vm.Reason != "exit code 137, out of memory: no room" {
		t.Errorf("a look: %q, %v", vm.Reason, err)
	}
	var told []string
	watched, _ := openWire(t, map[string]answer{
		"GET info": {200, `{"SystemTime":"2026-11-23T10:00:00.5+01:00"}`}, "GET json": {200, "[]"},
		"GET events": {200, event("start", "") + event("oom", "") + event("die", "137") + event("start", "") + event("die", "1")},
	})
	_ = watched.Watch(t.Context(), func(e provider.Event) { told = append(told, string(e.VM.State)+": "+e.VM.Reason) }) // the stream breaks
	if want := []string{"running: ", "stopped: exit code 137, out of memory", "running: ", "stopped: exit code 1"}; !slices.Equal(told, want) {
		t.Errorf("events: %q, want %q", told, want)
	}
	lists, _ := openWire(t, map[string]answer{"GET json": {200, encode([]map[string]any{
		{"Id": id, "State": "exited", "Status": "Exited (2) About an hour ago", "Labels": spec.Tags},
	})}})
	if vms, err := lists.List(t.Context()); err != nil || len(vms) != 1 || vms[0].Reason != "exit code 2" {
		t.Errorf("a list: %+v, %v", vms, err)
	}
}

func TestCreateErrors(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		want   error // nil: temporary, the outcome unknown
		says   string
	}{
		"no image":       {answer{404, "No such image: agent:1"}, provider.ErrInvalid, "build or load the image agent:1"},
		"bad parameter":  {answer{400, "invalid hostname"}, provider.ErrInvalid, "invalid hostname"},
		"forbidden":      {answer{403, "authorization denied by plugin"}, provider.ErrUnauthorized, "denied"},
		"full disk":      {answer{500, "write /var/lib: no space left on device"}, provider.ErrQuota, "no space"},
		"throttled":      {answer{429, "slow down"}, provider.ErrThrottled, "slow down"},
		"internal":       {answer{500, "server misbehaving"}, nil, "misbehaving"},
		"being replaced": {answer{503, "engine is stopping"}, nil, "stopping"},
	} {
		p, w := openWire(t, map[string]answer{"POST create": c.answer})
		_, err := p.Create(t.Context(), newSpec(t, wireScope(), nil))
		if err == nil || provider.Definite(err) != (c.want != nil) || (c.want != nil && !errors.Is(err, c.want)) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if n := count(w, "POST create"); n != 1 {
			t.Errorf("%s: %d creates were sent", name, n)
		}
	}
}

// TestReadErrors: what is not about the request itself passes, or is the caller's.
func TestReadErrors(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		want   error
	}{
		"throttled": {answer{429, "slow down"}, provider.ErrThrottled},
		"forbidden": {answer{403, "authorization denied by plugin"}, provider.ErrUnauthorized},
	} {
		p, _ := openWire(t, map[string]answer{"GET json": c.answer})
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

// TestStartErrors: a start that fails for good takes the container with it; one
// that may pass leaves it for the next create.
func TestStartErrors(t *testing.T) {
	for name, c := range map[string]struct {
		start, remove answer
		want          error
		removes       int
	}{
		"no program":       {answer{400, "exec: nstance-agent: not found"}, answer{204, ""}, provider.ErrInvalid, 1},
		"no network":       {answer{404, "network x not found"}, answer{204, ""}, provider.ErrInvalid, 1},
		"network is full":  {answer{500, "no available IPv4 addresses on this network"}, answer{204, ""}, provider.ErrSubnetFull, 1},
		"can't be removed": {answer{400, "exec: nstance-agent: not found"}, answer{409, "container is running"}, nil, 1},
		"address in use":   {answer{403, "Address already in use"}, answer{204, ""}, nil, 0},
		"internal":         {answer{500, "server misbehaving"}, answer{204, ""}, nil, 0},
	} {
		spec := newSpec(t, wireScope(), nil)
		p, w := openWire(t, map[string]answer{
			"POST create": {201, `{"Id":"a"}`}, "GET json": created(t, spec), "PUT archive": {200, ""},
			"POST start": c.start, "DELETE": c.remove,
		})
		_, err := p.Create(t.Context(), spec)
		if err == nil || provider.Definite(err) != (c.want != nil) || (c.want != nil && !errors.Is(err, c.want)) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if n := count(w, "DELETE"); n != c.removes {
			t.Errorf("%s: %d removals", name, n)
		}
	}
}

// TestCopyErrors: a copy that finds no room takes the container with it; after any other
// that fails the next create tries again.
func TestCopyErrors(t *testing.T) {
	for name, c := range map[string]struct {
		answer  answer
		want    error
		removes int
	}{
		"full disk": {answer{500, "write /opt/nstance-agent/identity/ca.crt: no space left on device"}, provider.ErrQuota, 1},
		"internal":  {answer{500, "server misbehaving"}, nil, 0},
		"is gone":   {answer{404, "No such container"}, nil, 0},
	} {
		spec := newSpec(t, wireScope(), nil)
		p, w := openWire(t, map[string]answer{
			"POST create": {201, `{"Id":"a"}`}, "GET json": created(t, spec), "PUT archive": c.answer, "DELETE": {204, ""},
		})
		_, err := p.Create(t.Context(), spec)
		if err == nil || provider.Definite(err) != (c.want != nil) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if n := count(w, "DELETE"); n != c.removes || count(w, "POST start") != 0 {
			t.Errorf("%s: %d removals, the engine was asked %v", name, n, w.calls)
		}
	}
}

// TestGuardBeforeRemoval has leadership end before the container of a start that
// failed for good is removed: it stays, and so does the doubt.
func TestGuardBeforeRemoval(t *testing.T) {
	spec := newSpec(t, wireScope(), nil)
	p, w := openWire(t, map[string]answer{
		"POST create": {201, `{"Id":"a"}`}, "GET json": created(t, spec), "PUT archive": {200, ""},
		"POST start": {400, "exec: nstance-agent: not found"}, "DELETE": {204, ""},
	})
	refusal := errors.New("not the leader")
	ctx := provider.WithGuard(t.Context(), func(context.Context) error {
		if count(w, "POST start") > 0 {
			return refusal
		}
		return nil
	})
	_, err := p.Create(ctx, spec)
	if !errors.Is(err, refusal) || provider.Definite(err) || !strings.Contains(err.Error(), "exec: nstance-agent") {
		t.Errorf("create answers %v, want why it did not start, and no definite error", err)
	}
	if n := count(w, "DELETE"); n != 0 {
		t.Errorf("%d removals without leave", n)
	}
}

// TestClose may come more than once.
func TestClose(t *testing.T) {
	p, _ := openWire(t, nil)
	p.Close()
	p.Close()
}

func TestUnreachable(t *testing.T) {
	p := openHost(t, "unix://"+filepath.Join(t.TempDir(), "no.sock"))
	spec := newSpec(t, wireScope(), nil)
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

func count(w *wire, call string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(w.calls), func(c string) bool { return c != call }))
}
