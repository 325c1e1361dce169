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

// TestResolve: a tag becomes the digest that it stands for now.
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
		t.Errorf("a digest, whose registry need not answer: %s, %v", got, err)
	}
	for image, want := range map[string]string{
		host + "/team/none:v1": "404", host + "/Team/agent": "can only contain", "agent:v1": "names no registry",
		host + "/agent@sha256:12": "digest",
	} {
		if got, err := c.Resolve(t.Context(), image); !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v; want ErrInvalid with %q", image, got, err, want)
		}
	}
}

// TestAnswers: what a registry answers has a kind, and what does not pass by itself is
// asked for once only.
func TestAnswers(t *testing.T) {
	for answer, want := range map[int]error{
		http.StatusUnauthorized: provider.ErrUnauthorized, http.StatusForbidden: provider.ErrUnauthorized,
		http.StatusTooManyRequests: provider.ErrQuota, http.StatusInternalServerError: nil, http.StatusServiceUnavailable: nil,
	} {
		var asked atomic.Int64
		host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				asked.Add(1)
				w.WriteHeader(answer)
			}
		}))
		_, err := registry.New("").Resolve(t.Context(), host+"/agent:v1")
		if err == nil || provider.Definite(err) != (want != nil) || want != nil && !errors.Is(err, want) || asked.Load() != 1 {
			t.Errorf("%d: %v after %d questions, want %v after one", answer, err, asked.Load(), want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	host := registrytest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }))
	if _, err := registry.New("").Resolve(ctx, host+"/agent:v1"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestWithoutHead: a registry that does not name the digest is asked for the manifest,
// of which it may not send more than fits.
func TestWithoutHead(t *testing.T) {
	served := registrytest.Handler(true)
	var dumb, long atomic.Bool
	host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if dumb.Load() && r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/manifests/") {
			return
		}
		if long.Load() && strings.Contains(r.URL.Path, "/manifests/") {
			_, _ = w.Write(make([]byte, 5<<20)) // the client hangs up
			return
		}
		served.ServeHTTP(w, r)
	}))
	want := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	dumb.Store(true)
	c := registry.New("")
	if got, err := c.Resolve(t.Context(), host+"/agent:v1"); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	long.Store(true)
	_, err := c.Resolve(t.Context(), host+"/agent:v1")
	if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a manifest of 5 MiB: %v", err)
	}
}

// private is a registry that wants a user and a password.
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

// TestPasswords come from a config's own list, from a credential helper, and from the
// file of docker login, and the engine is given the same.
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
		if _, err := c.Resolve(t.Context(), host+"/agent:v1"); !errors.Is(err, provider.ErrInvalid) { // let in: there is no such image
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
		var told map[string]string
		if err := json.Unmarshal(text, &told); err != nil {
			t.Fatal(err)
		}
		if told["username"] != "ada" || told["password"] != "pass word" || told["serveraddress"] != host {
			t.Errorf("with %q the engine is told %v", file, told)
		}
	}
	if _, err := registry.New(empty).Resolve(t.Context(), host+"/agent:v1"); !errors.Is(err, provider.ErrUnauthorized) {
		t.Errorf("without a password: %v", err)
	}
}

// TestCheckConfig: a file that is none is refused, naming it.
func TestCheckConfig(t *testing.T) {
	bad := write(t, filepath.Join(t.TempDir(), "bad.json"), `{"auths":`, 0o600)
	for _, path := range []string{bad, filepath.Join(t.TempDir(), "none.json")} {
		if err := registry.CheckConfig(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := registry.New(path).Resolve(t.Context(), "127.0.0.1:1/agent:v1"); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("asked with %s: %v", path, err)
		}
	}
}

// FuzzCheck: a name that may be asked for says its registry, and one by digest stays so.
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
			t.Errorf("%q names no registry", image)
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
