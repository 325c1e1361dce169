package docker_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/registry/registrytest"
)

// TestGuardsOfTwoTerms: a create that waits for a pull that a former term started is checked by
// its own guard.
func TestGuardsOfTwoTerms(t *testing.T) {
	served := registrytest.Handler(true)
	var slow atomic.Bool
	requested, released := make(chan struct{}, 16), make(chan struct{})
	host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slow.Load() && strings.Contains(r.URL.Path, "/manifests/") {
			requested <- struct{}{}
			<-released
		}
		served.ServeHTTP(w, r)
	}))
	registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	slow.Store(true)
	engine, w := serveFake(t, engineWithoutImage(response{200, ""}))
	p := openOptions(t, map[string]any{"host": engine, "image": host + "/agent:v1"})
	refusal := errors.New("not the leader")
	var over atomic.Bool
	old, end := context.WithCancel(provider.WithGuard(t.Context(), func(context.Context) error {
		if over.Load() {
			return refusal
		}
		return nil
	}))
	go func() { _, _ = p.Create(old, newSpec(t, testScope(), nil)) }() // its result does not matter
	<-requested
	over.Store(true)
	end()
	got := make(chan error, 1)
	go func() {
		_, err := p.Create(provider.WithGuard(t.Context(), func(context.Context) error { return nil }), newSpec(t, testScope(), nil))
		got <- err
	}()
	slow.Store(false)
	close(released)
	if err := <-got; errors.Is(err, refusal) {
		t.Errorf("the new term's create failed because of the old term's guard: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(w.calls, func(call string) bool {
		return strings.Contains(call, "images/create") || strings.HasPrefix(call, "POST create")
	}) {
		t.Errorf("no call to pull or create: %v", w.calls)
	}
}

// TestCreatedWithoutKey: a container that was created before verify_key was set, from an
// unsigned image, is not started.
func TestCreatedWithoutKey(t *testing.T) {
	host := registrytest.Serve(t, registrytest.Handler(true))
	registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	spec := newSpec(t, testScope(), nil)
	engine, w := serveFake(t, map[string]response{
		"GET json": created(t, spec), "PUT archive": {200, ""}, "POST start": {204, ""}, "DELETE " + "nstance-" + string(spec.ID): {204, ""},
	})
	p := openOptions(t, map[string]any{"host": engine, "image": host + "/agent:v1", "verify_key": registrytest.NewSigner(t).File(t)})
	if _, err := p.Create(t.Context(), spec); err == nil {
		t.Error("a container with an unsigned image was accepted")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.calls, "POST start") {
		t.Errorf("the container was started: %v", w.calls)
	}
}
