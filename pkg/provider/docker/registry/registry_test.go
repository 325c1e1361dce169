package registry_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/registry"
	"github.com/nstance/nstance/pkg/provider/docker/registry/registrytest"
)

func TestHosted(t *testing.T) {
	for image, want := range map[string]bool{
		"nstance-agent:dev": false, "nstance-agent": false, "library/redis": false, "team/nstance-agent:v1": false, "": false,
		"docker.io/library/redis": true, "ghcr.io/n/a:v1": true, "localhost/a": true, "registry:5000/a": true, "127.0.0.1:5000/a": true,
	} {
		if got := registry.Hosted(image); got != want {
			t.Errorf("%q: %v", image, got)
		}
	}
}

// TestResolve: a tag is resolved to its current digest.
func TestResolve(t *testing.T) {
	host := registrytest.Serve(t, registrytest.Handler(true))
	c := registry.New("")
	tag := host + "/team/agent:v1"
	for range 2 { // the second push moves the tag
		want := registrytest.Push(t, tag, registrytest.Image(t))
		for _, image := range []string{tag, want, tag + want[strings.Index(want, "@"):]} {
			if got, err := c.Resolve(t.Context(), image); err != nil || got != want {
				t.Errorf("%s: %s, %v; want %s", image, got, err, want)
			}
		}
	}
	digest := "ghcr.invalid/agent@sha256:" + strings.Repeat("ab", 32)
	if got, err := c.Resolve(t.Context(), digest); err != nil || got != digest {
		t.Errorf("a digest, which needs no registry: %s, %v", got, err)
	}
	for image, want := range map[string]string{
		host + "/team/none:v1": "404", host + "/Team/agent": "can only contain", "agent:v1": "has no registry",
		host + "/agent@sha256:12": "digest",
	} {
		if got, err := c.Resolve(t.Context(), image); !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v; want ErrInvalid with %q", image, got, err, want)
		}
	}
}

// TestErrorStatuses: a registry's error has a kind, and is not retried.
func TestErrorStatuses(t *testing.T) {
	for status, want := range map[int]error{
		http.StatusUnauthorized: provider.ErrUnauthorized, http.StatusForbidden: provider.ErrUnauthorized,
		http.StatusTooManyRequests: provider.ErrQuota, http.StatusInternalServerError: nil, http.StatusServiceUnavailable: nil,
	} {
		var requests atomic.Int64
		host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				requests.Add(1)
				w.WriteHeader(status)
			}
		}))
		_, err := registry.New("").Resolve(t.Context(), host+"/agent:v1")
		if err == nil || provider.Definite(err) != (want != nil) || want != nil && !errors.Is(err, want) || requests.Load() != 1 {
			t.Errorf("%d: %v after %d requests, want %v after one", status, err, requests.Load(), want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	host := registrytest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }))
	if _, err := registry.New("").Resolve(ctx, host+"/agent:v1"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestResolveWithHeadUnsupported: if a registry's response to HEAD lacks the digest, the
// manifest is read, whose size is limited.
func TestResolveWithHeadUnsupported(t *testing.T) {
	served := registrytest.Handler(true)
	var headless, long atomic.Bool
	host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if headless.Load() && r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/manifests/") {
			return
		}
		if long.Load() && strings.Contains(r.URL.Path, "/manifests/") {
			_, _ = w.Write(make([]byte, 5<<20)) // the client closes the connection
			return
		}
		served.ServeHTTP(w, r)
	}))
	want := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	headless.Store(true)
	c := registry.New("")
	if got, err := c.Resolve(t.Context(), host+"/agent:v1"); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	long.Store(true)
	_, err := c.Resolve(t.Context(), host+"/agent:v1")
	if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a manifest of 5 MiB: %v", err)
	}
}

// private serves a registry that requires a user and a password.
func private(t *testing.T) (host string) {
	t.Helper()
	served := registrytest.Handler(true)
	return registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ada" || password != "pass word" {
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		served.ServeHTTP(w, r)
	}))
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPasswords: passwords come from the auths of a config file, from a credential helper, and
// from the file of docker login, and are passed on to the engine.
func TestPasswords(t *testing.T) {
	host := private(t)
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	write(t, filepath.Join(dir, "docker-credential-test"),
		"#!/bin/sh\ncat >/dev/null\necho '{\"ServerURL\":\"x\",\"Username\":\"ada\",\"Secret\":\"pass word\"}'\n", 0o700)
	auth := base64.StdEncoding.EncodeToString([]byte("ada:pass word"))
	listed := write(t, filepath.Join(dir, "listed.json"), `{"auths":{"`+host+`":{"auth":"`+auth+`"}}}`, 0o600)
	helped := write(t, filepath.Join(dir, "helped.json"), `{"credHelpers":{"`+host+`":"test"}}`, 0o600)
	empty := write(t, filepath.Join(dir, "empty.json"), `{}`, 0o600)
	t.Setenv("HOME", dir)
	t.Setenv("DOCKER_CONFIG", filepath.Join(dir, "own"))
	if err := os.Mkdir(filepath.Join(dir, "own"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "own", "config.json"), `{"auths":{"`+host+`":{"auth":"`+auth+`"}}}`, 0o600)
	for _, file := range []string{listed, helped, ""} {
		if err := registry.CheckConfig(file); file != "" && err != nil {
			t.Errorf("%s: %v", file, err)
		}
		c := registry.New(file)
		if _, err := c.Resolve(t.Context(), host+"/agent:v1"); !errors.Is(err, provider.ErrInvalid) { // admitted, but the image is missing
			t.Errorf("with %q: %v, want ErrInvalid", file, err)
		}
		login, err := c.Login(t.Context(), host+"/agent:v1")
		if err != nil {
			t.Fatal(err)
		}
		text, err := base64.URLEncoding.DecodeString(login)
		if err != nil {
			t.Fatal(err)
		}
		var credentials map[string]string
		if err := json.Unmarshal(text, &credentials); err != nil {
			t.Fatal(err)
		}
		if credentials["username"] != "ada" || credentials["password"] != "pass word" || credentials["serveraddress"] != host {
			t.Errorf("with %q: login %v", file, credentials)
		}
	}
	if _, err := registry.New(empty).Resolve(t.Context(), host+"/agent:v1"); !errors.Is(err, provider.ErrUnauthorized) {
		t.Errorf("without a password: %v", err)
	}
}

// TestCheckConfig: the error names an invalid or a missing file.
func TestCheckConfig(t *testing.T) {
	bad := write(t, filepath.Join(t.TempDir(), "bad.json"), `{"auths":`, 0o600)
	for _, path := range []string{bad, filepath.Join(t.TempDir(), "none.json")} {
		if err := registry.CheckConfig(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := registry.New(path).Resolve(t.Context(), "127.0.0.1:1/agent:v1"); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("resolve with %s: %v", path, err)
		}
	}
}

// FuzzCheck: an accepted name has a registry, and its digest does not change when it is
// resolved.
func FuzzCheck(f *testing.F) {
	f.Add("ghcr.io/nstance/agent:v1")
	f.Add("127.0.0.1:5000/a/b@sha256:" + strings.Repeat("ab", 32))
	f.Add("docker.io/library/a:b@sha256:" + strings.Repeat("cd", 32))
	f.Add("agent:dev")
	f.Add("/@")
	f.Fuzz(func(t *testing.T, image string) {
		if registry.Check(image) != nil {
			return
		}
		if !registry.Hosted(image) {
			t.Errorf("%q has no registry", image)
		}
		if !strings.Contains(image, "@") {
			return
		}
		once, err := registry.New("").Resolve(t.Context(), image)
		if err != nil || !strings.HasSuffix(image, once[strings.Index(once, "@"):]) {
			t.Fatalf("%q resolves to %q, %v", image, once, err)
		}
		if twice, err := registry.New("").Resolve(t.Context(), once); err != nil || twice != once {
			t.Errorf("%q resolves to %q, and that to %q, %v", image, once, twice, err)
		}
	})
}
