package docker_test

import (
	"context"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/docker/registry/registrytest"
)

// engineWithoutImage returns the responses of an engine that lacks the image.
func engineWithoutImage(pull response) map[string]response {
	return map[string]response{
		"POST create": {404, "No such image: agent"}, "POST image create": pull, "PUT archive": {200, ""}, "POST start": {204, ""},
	}
}

// barrier returns a function that blocks until n callers have called it.
func barrier(n int) func() {
	var mu sync.Mutex
	open := make(chan struct{})
	return func() {
		mu.Lock()
		if n--; n == 0 {
			close(open)
		}
		mu.Unlock()
		<-open
	}
}

// TestPullErrors: after a failed pull no container was created, and the error has the reason.
func TestPullErrors(t *testing.T) {
	host := registrytest.Serve(t, registrytest.Handler(true))
	reference := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	for name, c := range map[string]struct {
		response response
		want     error // nil: temporary
	}{
		"denied":           {response{404, "pull access denied for agent"}, provider.ErrUnauthorized},
		"no password":      {response{500, "unauthorized: authentication required"}, provider.ErrUnauthorized},
		"unknown manifest": {response{404, "manifest for agent not found: manifest unknown"}, provider.ErrInvalid},
		"no platform":      {response{200, `{"status":"x"}{"error":"no matching manifest for linux/s390x"}`}, provider.ErrInvalid},
		"no encryption":    {response{500, "server gave HTTP response to HTTPS client"}, provider.ErrInvalid},
		"disk full":        {response{200, `{"status":"x"}{"error":"write /var/lib/docker/tmp/x: no space left on device"}`}, provider.ErrQuota},
		"rate limit":       {response{200, `{"error":"toomanyrequests: slow down"}`}, provider.ErrQuota},
		"interrupted":      {response{200, `{"status":"x"}{"error":"unexpected EOF"}`}, nil},
		"invalid response": {response{200, `{"status":`}, nil},
		"internal":         {response{500, "misbehaving"}, nil},
	} {
		spec := newSpec(t, testScope(), nil)
		engine, w := serveFake(t, engineWithoutImage(c.response))
		p := openOptions(t, map[string]any{"host": engine, "image": host + "/agent:v1"})
		_, err := p.Create(t.Context(), spec)
		if err == nil || provider.Definite(err) != (c.want != nil) || c.want != nil && !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), "pull image "+reference) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if n := countCalls(w, "POST image create"); n != 1 {
			t.Errorf("%s: %d pulls", name, n)
		}
	}
}

// TestPullOnce: concurrent creates wait for one pull, and stop waiting when their context ends,
// which does not end the pull.
func TestPullOnce(t *testing.T) {
	host := registrytest.Serve(t, registrytest.Handler(true))
	registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	engine, w := serveFake(t, engineWithoutImage(response{200, `{"error":"no matching manifest"}`}))
	p := openOptions(t, map[string]any{"host": engine, "image": host + "/agent:v1"})
	const creates = 8
	pulling, finish := make(chan struct{}), make(chan struct{})
	arrived, started := barrier(creates), sync.OnceFunc(func() { close(pulling) })
	w.during = func(call string) {
		switch call {
		case "POST create":
			arrived()
		case "POST image create":
			started()
			<-finish
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	for range creates {
		go func() {
			_, err := p.Create(ctx, newSpec(t, testScope(), nil))
			errs <- err
		}()
	}
	<-pulling
	cancel()
	for range creates {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
	again := make(chan error)
	go func() {
		_, err := p.Create(t.Context(), newSpec(t, testScope(), nil))
		again <- err
	}()
	close(finish)
	if err := <-again; !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("the pull of the cancelled creates: %v", err)
	}
	if n := countCalls(w, "POST image create"); n > 2 { // the last create may have started after the first pull
		t.Errorf("%d pulls", n)
	}
}

// TestGuardBeforePull: leadership ends before the pull, which does not take place.
func TestGuardBeforePull(t *testing.T) {
	host := registrytest.Serve(t, registrytest.Handler(true))
	registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	spec := newSpec(t, testScope(), nil)
	engine, w := serveFake(t, engineWithoutImage(response{200, ""}))
	p := openOptions(t, map[string]any{"host": engine, "image": host + "/agent:v1"})
	refusal := errors.New("not the leader")
	ctx := provider.WithGuard(t.Context(), func(context.Context) error {
		if countCalls(w, "GET image json") > 0 {
			return refusal
		}
		return nil
	})
	if _, err := p.Create(ctx, spec); !errors.Is(err, refusal) || provider.Definite(err) {
		t.Errorf("create: %v", err)
	}
	if n := countCalls(w, "POST image create"); n != 0 {
		t.Errorf("%d pulls after the end of leadership", n)
	}
}

// TestLocalImages: a name without a registry is a local image, and with pull: never every name
// is.
func TestLocalImages(t *testing.T) {
	requested := false
	host := registrytest.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requested = true }))
	for _, options := range []map[string]any{
		{"image": "nstance-agent:dev"}, {"image": "team/nstance-agent:v1"}, {"image": host + "/agent:v1", "pull": "never"},
	} {
		spec := newSpec(t, testScope(), nil)
		engine, w := serveFake(t, engineWithoutImage(response{200, ""}))
		options["host"] = engine
		_, err := openOptions(t, options).Create(t.Context(), spec)
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "build or load the image") {
			t.Errorf("%v: %v", options, err)
		}
		if requested || countCalls(w, "POST image create")+countCalls(w, "GET image json") > 0 {
			t.Errorf("%v: the registry was called: %t, calls of the engine %v", options, requested, w.calls)
		}
	}
}

// TestImageRemovedAfterPull: an image that is removed between pull and create is pulled again
// by the next create.
func TestImageRemovedAfterPull(t *testing.T) {
	host := registrytest.Serve(t, registrytest.Handler(true))
	registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	spec := newSpec(t, testScope(), nil)
	engine, w := serveFake(t, engineWithoutImage(response{200, ""}))
	p := openOptions(t, map[string]any{"host": engine, "image": host + "/agent:v1"})
	for n := range 2 {
		if _, err := p.Create(t.Context(), spec); err == nil || provider.Definite(err) || countCalls(w, "POST image create") != n+1 {
			t.Errorf("after %d pulls: %v", countCalls(w, "POST image create"), err)
		}
	}
}

// TestTagIsResolvedAgain: a tag is resolved again after a while, but not for each create, and
// an existing container needs no image.
func TestTagIsResolvedAgain(t *testing.T) {
	served, requests := registrytest.Handler(true), 0
	host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/manifests/v1") {
			requests++
		}
		served.ServeHTTP(w, r)
	}))
	first := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	requests = 0
	spec := newSpec(t, testScope(), nil)
	engine, w := serveFake(t, map[string]response{"POST create": {400, "bad"}, "GET image json": {200, "{}"}})
	cfg, err := docker.Default(testScope(), slog.New(slog.DiscardHandler)).WithOptions(map[string]any{
		"host": engine, "image": host + "/agent:v1", "pull": "always",
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	cfg.Now = func() time.Time { return now }
	p, err := docker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	create := func(want string, wantRequests int) {
		t.Helper()
		_, _ = p.Create(t.Context(), spec) // only its requests matter
		if body := w.bodies["POST create"]; !strings.Contains(body, `"Image":"`+want+`"`) || requests != wantRequests {
			t.Errorf("after %d requests to the registry: %s, want image %s after %d", requests, body, want, wantRequests)
		}
	}
	create(first, 1)
	second := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	requests = 1 // without those of the push
	create(first, 1)
	now = now.Add(time.Minute)
	create(second, 2)
	w.mu.Lock()
	w.responses["GET json"] = created(t, spec)
	w.responses["PUT archive"], w.responses["POST start"] = response{200, ""}, response{204, ""}
	w.mu.Unlock()
	now = now.Add(time.Minute)
	if _, err := p.Create(t.Context(), spec); err != nil || requests != 2 {
		t.Errorf("an existing container: %v after %d requests", err, requests)
	}
}

// TestRegistryOptions: invalid options are refused with the config, and an unreadable file when
// the provider is opened.
func TestRegistryOptions(t *testing.T) {
	base := docker.Default(testScope(), slog.New(slog.DiscardHandler))
	key := registrytest.NewSigner(t).File(t)
	none := filepath.Join(t.TempDir(), "none")
	noKey := filepath.Join(t.TempDir(), "no.pub")
	if err := os.WriteFile(noKey, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, options := range map[string]map[string]any{
		`options.pull: "often" is not valid: want missing, always or never`:            {"image": "i", "pull": "often"},
		`options.image: "agent:v1" is not valid because options.pull is always: it ha`: {"image": "agent:v1", "pull": "always"},
		`options.image: "agent:v1" is not valid because options.verify_key is set`:     {"image": "agent:v1", "verify_key": key},
		`options.node.image: "node" is not valid because options.verify_key is set`: {
			"image": "r.example/agent:v1", "verify_key": key, "node": map[string]any{"image": "node"},
		},
		"options.verify_key: stat " + none:      {"image": "r.example/agent:v1", "verify_key": none},
		"options.verify_key: " + noKey:          {"image": "r.example/agent:v1", "verify_key": noKey},
		"options.verify_key: " + t.TempDir():    {"image": "r.example/agent:v1", "verify_key": ""},
		"options.registry_config: open " + none: {"image": "i", "registry_config": none},
	} {
		if options["verify_key"] == "" { // a folder
			options["verify_key"] = strings.TrimPrefix(want, "options.verify_key: ")
		}
		cfg, err := base.WithOptions(options)
		if err == nil {
			_, err = docker.New(cfg)
		}
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", options, err, want)
		}
	}
	cfg, err := base.WithOptions(map[string]any{"image": "r.example/agent:v1", "verify_key": key})
	if err != nil {
		t.Fatal(err)
	}
	err = cfg.CheckArgs(provider.Spec{Args: map[string]any{"image": "mine:v1"}})
	if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), `"mine:v1" is not valid because options.verify_key`) {
		t.Errorf("args.image: %v", err)
	}
}
