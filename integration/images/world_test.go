//go:build integration

// Package images_test builds, signs and verifies images as `make images sign-images
// verify-images` do, with the real ko and cosign. It needs no container engine and no
// other registry.
package images_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/nstance/nstance/images/registry"
	"github.com/nstance/nstance/images/release"
)

// checkout is where the tools are started.
const checkout = "../.."

// world is a registry and what signs images in it.
type world struct {
	release.Builder
	host   string // of the registry
	folder string // of the registry
	signer release.Signer
	trust  release.Trust
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{folder: t.TempDir()}
	w.Builder = release.Builder{Source: checkout, Work: t.TempDir(), Output: t.Output()}
	served, err := registry.Open(t.Context(), w.folder)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(served)
	t.Cleanup(server.Close)
	w.host = strings.TrimPrefix(server.URL, "http://")
	w.signer, w.trust = w.keys(t, "keys")
	return w
}

// keys makes a pair of keys.
func (w *world) keys(t *testing.T, folder string) (release.Signer, release.Trust) {
	t.Helper()
	private, public, err := w.Keys(t.Context(), filepath.Join(w.Work, folder))
	if err != nil {
		t.Fatal(err)
	}
	return release.Signer{Key: private}, release.Trust{Key: public}
}

// image pushes an index of one small image, with an SBOM beside it.
func (w *world) image(t *testing.T, program string) release.Release {
	t.Helper()
	image, err := random.Image(256, 1)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	image, err = mutate.ConfigFile(mutate.MediaType(image, types.OCIManifestSchema1), config)
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}},
	})
	repository := w.host + "/test/" + program
	reference, err := release.PushIndex(t.Context(), index, repository, "v1")
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	version, err := w.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sbom := filepath.Join(t.TempDir(), "sbom.json")
	text := `{"SPDXID":"SPDXRef-DOCUMENT","spdxVersion":"SPDX-2.3","name":"` + digest.String() + `"}`
	if err := os.WriteFile(sbom, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return release.Release{Version: version, Commit: strings.TrimSpace(string(head)), Images: []release.Image{{
		Name: program, Reference: reference,
		Platforms: []release.Platform{{Architecture: "amd64", SBOM: sbom, Reference: repository + "@" + digest.String()}},
	}}}
}

// digest is a reference by digest.
func digest(t *testing.T, reference string) name.Digest {
	t.Helper()
	d, err := name.NewDigest(reference)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// bundles are the manifests that refer to what a reference names.
func bundles(t *testing.T, reference string) []v1.Descriptor {
	t.Helper()
	referrers, err := remote.Referrers(digest(t, reference))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return manifest.Manifests
}

// serve serves what a build pushed at its address, until the returned function ends it.
func serve(t *testing.T, work string) (end func()) {
	t.Helper()
	served, err := registry.Open(t.Context(), filepath.Join(work, "registry"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: served}
	go func() { _ = server.Serve(listener) }()
	return func() { server.Close() }
}
