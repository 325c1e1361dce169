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

// checkout is the folder in which the tools run.
const checkout = "../.."

// fixture is a registry, with the keys that sign images in it.
type fixture struct {
	release.Builder
	host   string // of the registry
	folder string // of the registry
	signer release.Signer
	trust  release.Trust
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{folder: t.TempDir()}
	f.Builder = release.Builder{Source: checkout, Work: t.TempDir(), Output: t.Output()}
	served, err := registry.Open(t.Context(), f.folder)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(served)
	t.Cleanup(server.Close)
	f.host = strings.TrimPrefix(server.URL, "http://")
	f.signer, f.trust = f.keys(t, "keys")
	return f
}

// keys creates a pair of keys.
func (f *fixture) keys(t *testing.T, folder string) (release.Signer, release.Trust) {
	t.Helper()
	private, public, err := f.Keys(t.Context(), filepath.Join(f.Work, folder))
	if err != nil {
		t.Fatal(err)
	}
	return release.Signer{Key: private}, release.Trust{Key: public}
}

// image pushes an index of one small image, with an SBOM.
func (f *fixture) image(t *testing.T, program string) release.Release {
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
	repository := f.host + "/test/" + program
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
	version, err := f.Version(t.Context())
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

// digest returns a reference by digest.
func digest(t *testing.T, reference string) name.Digest {
	t.Helper()
	d, err := name.NewDigest(reference)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// bundles returns the manifests that refer to a reference's digest.
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

// serve serves a build's pushed images at its address, until the returned function is called.
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
