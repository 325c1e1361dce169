package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
	"github.com/nstance/nstance/pkg/provider/docker/registry/registrytest"
	"github.com/nstance/nstance/pkg/provider/docker/signature"
)

// newAgentImage returns an image of the test's agent as in a registry: without the folders that
// the agent writes to. Each name results in a different image.
func newAgentImage(t *testing.T, e engine, name string) v1.Image {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "agent", Mode: 0o755, Size: int64(len(e.program)), Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(e.program); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	program, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, program)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", engineArch(t, e)
	config.Config = v1.Config{Entrypoint: []string{"/agent"}, Labels: map[string]string{"test": name}}
	img, err = mutate.ConfigFile(img, config)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func engineArch(t *testing.T, e engine) string {
	t.Helper()
	v, err := e.api.ServerVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v.Arch
}

// serveImages serves a registry that the engine can pull from, and removes what the engine knows by
// its name at the end: by that name only, since other tests may run the same image by another. With
// SECLUDED=1 the tests are in a network namespace with a loopback of its own, which the engine
// can't reach.
func serveImages(t *testing.T, e engine, handler http.Handler) (host string) {
	t.Helper()
	if os.Getenv("SECLUDED") == "1" {
		t.Skip("SKIPPED, the engine can't reach a registry in the tests' network namespace: make integration pulls images")
	}
	host = registrytest.Serve(t, handler)
	t.Cleanup(func() {
		ctx := context.Background()
		all, err := e.api.ImageList(ctx, image.ListOptions{})
		for _, i := range all {
			for _, name := range append(i.RepoTags, i.RepoDigests...) {
				if !strings.HasPrefix(name, host+"/") {
					continue
				}
				_, removed := e.api.ImageRemove(ctx, name, image.RemoveOptions{PruneChildren: true})
				if !errdefs.IsNotFound(removed) { // the last tag took the digests with it
					err = errors.Join(err, removed)
				}
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	return host
}

// TestPullByDigest: an image that only a registry has is pulled, with the registry's password,
// and runs hardened although it lacks the agent's folders.
func TestPullByDigest(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	served := registrytest.Handler(true)
	var locked atomic.Bool
	host := serveImages(t, e, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); locked.Load() && (user != "ada" || password != "pass") {
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		served.ServeHTTP(w, r)
	}))
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	want := registrytest.Push(t, host+"/agent:v1", newAgentImage(t, e, t.Name()))
	locked.Store(true)
	_, err := open(t, e, scope, map[string]any{"image": host + "/agent:v1"}).Create(t.Context(), newSpec(t, scope, nil))
	if !errors.Is(err, provider.ErrUnauthorized) {
		t.Errorf("without a password: %v", err)
	}
	config := filepath.Join(t.TempDir(), "config.json")
	auth := base64.StdEncoding.EncodeToString([]byte("ada:pass"))
	if err := os.WriteFile(config, []byte(`{"auths":{"`+host+`":{"auth":"`+auth+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, e, scope, map[string]any{"image": host + "/agent:v1", "registry_config": config})
	spec := newSpec(t, scope, nil)
	vm, err := p.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if got := logs(t, e, vm.ProviderID); got != "the.nonce.jwt "+string(spec.ID)+" 65532  <nil>" {
		t.Errorf("the agent printed %q", got)
	}
	c, err := e.api.ContainerInspect(t.Context(), vm.ProviderID)
	if err != nil || c.Config.Image != want {
		t.Errorf("runs %s, %v; want %s", c.Config.Image, err, want)
	}
}

// TestVerifyKey: with a key, images that it signed run, and others are not even pulled.
func TestVerifyKey(t *testing.T) {
	e := needEngine(t)
	t.Parallel()
	host := serveImages(t, e, registrytest.Handler(true))
	scope := provider.Scope{ClusterID: newCluster(t, e), Shard: "s"}
	signer, other := registrytest.NewSigner(t), registrytest.NewSigner(t)
	signed := registrytest.Push(t, host+"/signed:v1", newAgentImage(t, e, "signed"))
	signer.Sign(t, signed)
	p := open(t, e, scope, map[string]any{"image": host + "/signed:v1", "images": []any{host + "/**"}, "verify_key": signer.File(t)})
	local := host + "/local:v1" // only the engine has it
	if err := e.api.ImageTag(t.Context(), e.image, local); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		attach func(reference string)
		want   string
	}{
		"unsigned":    {func(string) {}, "the registry has none for it"},
		"another-key": {func(reference string) { other.Sign(t, reference) }, "another key"},
		"sbom-only": {func(reference string) {
			registrytest.Attach(t, reference, signer.Bundle(t, registrytest.SBOM, reference[strings.Index(reference, "@")+1:]), registrytest.SBOM)
		}, "which is not a signature"},
		"other-image": {func(reference string) {
			about := signed[strings.Index(signed, "@")+1:]
			registrytest.Attach(t, reference, signer.Bundle(t, signature.PredicateType, about), signature.PredicateType)
		}, "a signature of another image"},
		"local": {nil, "404"},
	} {
		tag := host + "/" + name + ":v1"
		reference := tag
		if c.attach != nil {
			reference = registrytest.Push(t, tag, newAgentImage(t, e, name))
			c.attach(reference)
		}
		_, err := p.Create(t.Context(), newSpec(t, scope, map[string]any{"image": tag}))
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), tag) {
			t.Errorf("%s: %v, want ErrInvalid with %q", name, err, c.want)
		}
		if _, err := e.api.ImageInspect(t.Context(), reference); c.attach != nil && err == nil {
			t.Errorf("%s: the image was pulled", name)
		}
	}
	vm, err := p.Create(t.Context(), newSpec(t, scope, nil))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := e.api.ContainerInspect(t.Context(), vm.ProviderID); err != nil || c.Config.Image != signed {
		t.Errorf("runs %s, %v; want %s", c.Config.Image, err, signed)
	}
	if vms, err := p.List(t.Context()); err != nil || len(vms) != 1 {
		t.Errorf("refused creates left %+v, %v", vms, err)
	}
	// The engine has no digest of a local image, and without a key none is needed.
	if _, err := open(t, e, scope, map[string]any{"image": local}).Create(t.Context(), newSpec(t, scope, nil)); err != nil {
		t.Errorf("a local image without a key: %v", err)
	}
	if err := docker.RemoveImage(t.Context(), "", local); err != nil {
		t.Error(err)
	}
}
