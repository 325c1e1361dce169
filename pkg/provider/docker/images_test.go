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

// pulls is an engine that has no image until it pulled one.
func pulls(pull answer) map[string]answer {
	return map[string]answer{
		"POST create": {404, "No such image: agent"}, "POST image create": pull, "PUT archive": {200, ""}, "POST start": {204, ""},
	}
}

// gate closes until a number of callers have come.
func gate(n int) func() {
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

// TestPullErrors: a pull that failed has made nothing, and says what for.
func TestPullErrors(t *testing.T) {
	host := registrytest.Serve(t, registrytest.Handler(true))
	reference := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	for name, c := range map[string]struct {
		answer answer
		want   error // nil: temporary
	}{
		"denied":            {answer{404, "pull access denied for agent"}, provider.ErrUnauthorized},
		"no password":       {answer{500, "unauthorized: authentication required"}, provider.ErrUnauthorized},
		"gone":              {answer{404, "manifest for agent not found: manifest unknown"}, provider.ErrInvalid},
		"for other engines": {answer{200, `{"status":"x"}{"error":"no matching manifest for linux/s390x"}`}, provider.ErrInvalid},
		"no encryption":     {answer{500, "server gave HTTP response to HTTPS client"}, provider.ErrInvalid},
		"disk full":         {answer{200, `{"status":"x"}{"error":"write /var/lib/docker/tmp/x: no space left on device"}`}, provider.ErrQuota},
		"too often":         {answer{200, `{"error":"toomanyrequests: slow down"}`}, provider.ErrQuota},
		"broken off":        {answer{200, `{"status":"x"}{"error":"unexpected EOF"}`}, nil},
		"nonsense":          {answer{200, `{"status":`}, nil},
		"internal":          {answer{500, "misbehaving"}, nil},
	} {
		spec := newSpec(t, wireScope(), nil)
		engine, w := serveWire(t, pulls(c.answer))
		p := openOptions(t, map[string]any{"host": engine, "image": host + "/agent:v1"})
		_, err := p.Create(t.Context(), spec)
		if err == nil || provider.Definite(err) != (c.want != nil) || c.want != nil && !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), "pull image "+reference) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if n := count(w, "POST image create"); n != 1 {
			t.Errorf("%s: %d pulls", name, n)
		}
	}
}

// TestPulledOnce: creates that come at once wait for one pull, and give up waiting when
// their context ends, which ends no pull.
func TestPulledOnce(t *testing.T) {
	host := registrytest.Serve(t, registrytest.Handler(true))
	registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	engine, w := serveWire(t, pulls(answer{200, `{"error":"no matching manifest"}`}))
	p := openOptions(t, map[string]any{"host": engine, "image": host + "/agent:v1"})
	const creates = 8
	pulling, all := make(chan struct{}), make(chan struct{})
	arrived, began := gate(creates), sync.OnceFunc(func() { close(pulling) })
	w.during = func(call string) {
		switch call {
		case "POST create":
			arrived()
		case "POST image create":
			began()
			<-all
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	for range creates {
		go func() {
			_, err := p.Create(ctx, newSpec(t, wireScope(), nil))
			errs <- err
		}()
	}
	<-pulling
	cancel()
	for range creates {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
	}
	again := make(chan error)
	go func() {
		_, err := p.Create(t.Context(), newSpec(t, wireScope(), nil))
		again <- err
	}()
	close(all)
	if err := <-again; !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("the pull that goes on: %v", err)
	}
	if n := count(w, "POST image create"); n > 2 { // the last create may have come when the first pull was over
		t.Errorf("%d pulls", n)
	}
}

// TestGuardBeforePull has leadership end before the pull.
func TestGuardBeforePull(t *testing.T) {
	host := registrytest.Serve(t, registrytest.Handler(true))
	registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	spec := newSpec(t, wireScope(), nil)
	engine, w := serveWire(t, pulls(answer{200, ""}))
	p := openOptions(t, map[string]any{"host": engine, "image": host + "/agent:v1"})
	refusal := errors.New("not the leader")
	ctx := provider.WithGuard(t.Context(), func(context.Context) error {
		if count(w, "GET image json") > 0 {
			return refusal
		}
		return nil
	})
	if _, err := p.Create(ctx, spec); !errors.Is(err, refusal) || provider.Definite(err) {
		t.Errorf("create answers %v", err)
	}
	if n := count(w, "POST image create"); n != 0 {
		t.Errorf("%d pulls without leave", n)
	}
}

// TestNothingIsPulled: a name without a registry is the engine's own, and so is every
// name where the options say so.
func TestNothingIsPulled(t *testing.T) {
	asked := false
	host := registrytest.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	for _, options := range []map[string]any{
		{"image": "nstance-agent:dev"}, {"image": "team/nstance-agent:v1"}, {"image": host + "/agent:v1", "pull": "never"},
	} {
		spec := newSpec(t, wireScope(), nil)
		engine, w := serveWire(t, pulls(answer{200, ""}))
		options["host"] = engine
		_, err := openOptions(t, options).Create(t.Context(), spec)
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "build or load the image") {
			t.Errorf("%v: %v", options, err)
		}
		if asked || count(w, "POST image create")+count(w, "GET image json") > 0 {
			t.Errorf("%v: the registry was asked: %v, the engine %v", options, asked, w.calls)
		}
	}
}

// TestImageVanishes: one that is removed between pull and create is pulled again next
// time.
func TestImageVanishes(t *testing.T) {
	host := registrytest.Serve(t, registrytest.Handler(true))
	registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	spec := newSpec(t, wireScope(), nil)
	engine, w := serveWire(t, pulls(answer{200, ""}))
	p := openOptions(t, map[string]any{"host": engine, "image": host + "/agent:v1"})
	for n := range 2 {
		if _, err := p.Create(t.Context(), spec); err == nil || provider.Definite(err) || count(w, "POST image create") != n+1 {
			t.Errorf("after %d pulls: %v", count(w, "POST image create"), err)
		}
	}
}

// TestTagsAreFollowed: a tag is asked for again, though not for each create, and a
// container that there is needs no image.
func TestTagsAreFollowed(t *testing.T) {
	served, asked := registrytest.Handler(true), 0
	host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/manifests/v1") {
			asked++
		}
		served.ServeHTTP(w, r)
	}))
	first := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	asked = 0
	spec := newSpec(t, wireScope(), nil)
	engine, w := serveWire(t, map[string]answer{"POST create": {400, "bad"}, "GET image json": {200, "{}"}})
	cfg, err := docker.Default(wireScope(), slog.New(slog.DiscardHandler)).WithOptions(map[string]any{
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
	create := func(want string, questions int) {
		t.Helper()
		_, _ = p.Create(t.Context(), spec) // what it asks for is looked at
		if body := w.bodies["POST create"]; !strings.Contains(body, `"Image":"`+want+`"`) || asked != questions {
			t.Errorf("after %d questions %s is asked for, want %s after %d", asked, body, want, questions)
		}
	}
	create(first, 1)
	second := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	asked = 1 // the push asked too
	create(first, 1)
	now = now.Add(time.Minute)
	create(second, 2)
	w.mu.Lock()
	w.answers["GET json"] = created(t, spec)
	w.answers["PUT archive"], w.answers["POST start"] = answer{200, ""}, answer{204, ""}
	w.mu.Unlock()
	now = now.Add(time.Minute)
	if _, err := p.Create(t.Context(), spec); err != nil || asked != 2 {
		t.Errorf("a container that there is: %v after %d questions", err, asked)
	}
}

// TestRegistryOptions: what can't be asked or verified is refused when the config comes
// in, and a file that can't be read when the provider is opened.
func TestRegistryOptions(t *testing.T) {
	base := docker.Default(wireScope(), slog.New(slog.DiscardHandler))
	key := registrytest.NewSigner(t).File(t)
	none := filepath.Join(t.TempDir(), "none")
	noKey := filepath.Join(t.TempDir(), "no.pub")
	if err := os.WriteFile(noKey, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, options := range map[string]map[string]any{
		`options.pull: "often" is not valid: want missing, always or never`:          {"image": "i", "pull": "often"},
		`options.image: "agent:v1" is not valid where options.pull is always: it na`: {"image": "agent:v1", "pull": "always"},
		`options.image: "agent:v1" is not valid where options.verify_key is set`:     {"image": "agent:v1", "verify_key": key},
		`options.node.image: "node" is not valid where options.verify_key is set`: {
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
	if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), `args.image: "mine:v1" is not valid where options.verify_key`) {
		t.Errorf("args.image: %v", err)
	}
}
