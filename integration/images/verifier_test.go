//go:build integration

package images_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/nstance/nstance/images/release"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/registry"
	"github.com/nstance/nstance/pkg/provider/docker/registry/registrytest"
	"github.com/nstance/nstance/pkg/provider/docker/signature"
)

// TestVerifierAgreesWithCosign: the server's own check of a signature, for which it links
// no cosign, says of each image what cosign says of it.
func TestVerifierAgreesWithCosign(t *testing.T) {
	w := newWorld(t)
	signed := w.image(t, "signed")
	if err := w.Sign(t.Context(), signed, w.signer); err != nil {
		t.Fatal(err)
	}
	_, other := w.keys(t, "other")
	key := func(trust release.Trust) signature.Key {
		text, err := os.ReadFile(trust.Key)
		if err != nil {
			t.Fatal(err)
		}
		k, err := signature.ParseKey(text)
		if err != nil {
			t.Fatalf("%s, as cosign wrote it: %v", trust.Key, err)
		}
		return k
	}
	for _, c := range []struct {
		name  string
		made  release.Release
		trust release.Trust
		want  string // empty: signed
	}{
		{"signed", signed, w.trust, ""},
		{"another key", signed, other, "another key"},
		{"unsigned", w.image(t, "unsigned"), w.trust, "none at all"},
		{"the signature of another image", w.moved(t, signed), w.trust, "a signature of another image"},
		{"an SBOM only", w.onlyAttested(t), w.trust, "which is no signature"},
	} {
		for _, reference := range c.made.Images[0].References() {
			byTag, err := registry.New("").Resolve(t.Context(), reference)
			if err != nil || byTag != reference {
				t.Fatalf("%s: %s resolves to %s, %v", c.name, reference, byTag, err)
			}
			ours := registry.New("").Verify(t.Context(), reference, key(c.trust))
			theirs := w.VerifyStatement(t.Context(), reference, signature.PredicateType, c.trust)
			if (ours == nil) != (theirs == nil) || (ours == nil) != (c.want == "") {
				t.Errorf("%s: %s: the server says %v, cosign %v", c.name, reference, ours, theirs)
			}
			if ours != nil && (!errors.Is(ours, provider.ErrInvalid) || !strings.Contains(ours.Error(), c.want)) {
				t.Errorf("%s: %s: %v, want ErrInvalid with %q", c.name, reference, ours, c.want)
			}
		}
	}
}

// onlyAttested is an image for one architecture of which the key signed an SBOM only.
func (w *world) onlyAttested(t *testing.T) release.Release {
	t.Helper()
	made := w.image(t, "attested")
	if err := w.Sign(t.Context(), made, w.signer); err != nil {
		t.Fatal(err)
	}
	platform := made.Images[0].Platforms[0].Reference
	for _, of := range bundles(t, platform) {
		if w.isSignature(t, platform, of) {
			if err := remote.Delete(digest(t, platform).Context().Digest(of.Digest.String())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left := bundles(t, platform); len(left) != 1 {
		t.Fatalf("%d bundles refer to the image, want the SBOM alone", len(left))
	}
	return release.Release{Images: []release.Image{{Name: "attested", Reference: platform}}}
}

// isSignature reports whether a bundle about an image says that it is its signature.
func (w *world) isSignature(t *testing.T, reference string, of v1.Descriptor) bool {
	t.Helper()
	bundle, err := remote.Image(digest(t, reference).Context().Digest(of.Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := bundle.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return manifest.Annotations["dev.sigstore.bundle.predicateType"] == signature.PredicateType
}

// TestKindsOfKeys: what cosign signs with any kind of key that the server takes counts.
func TestKindsOfKeys(t *testing.T) {
	w := newWorld(t)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	factors, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, private := range map[string]any{"ed25519": edwards, "rsa": factors} {
		t.Run(name, func(t *testing.T) {
			trust, signer := w.imported(t, private)
			made := w.image(t, name)
			made.Images[0].Platforms = nil
			if err := w.Sign(t.Context(), made, signer); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(trust.Key)
			if err != nil {
				t.Fatal(err)
			}
			key, err := signature.ParseKey(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := registry.New("").Verify(t.Context(), made.Images[0].Reference, key); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWithoutReferrers: in a registry that has no referrers API cosign's signature is
// found by the tag that stands in for it.
func TestWithoutReferrers(t *testing.T) {
	w := newWorld(t)
	w.host = registrytest.Serve(t, registrytest.Handler(false))
	made := w.image(t, "signed")
	made.Images[0].Platforms = nil
	text, err := os.ReadFile(w.trust.Key)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signature.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	reference := made.Images[0].Reference
	if err := registry.New("").Verify(t.Context(), reference, key); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("unsigned: %v", err)
	}
	if err := w.Sign(t.Context(), made, w.signer); err != nil {
		t.Fatal(err)
	}
	if err := registry.New("").Verify(t.Context(), reference, key); err != nil {
		t.Error(err)
	}
}

// imported has cosign take over a key that was made elsewhere.
func (w *world) imported(t *testing.T, private any) (release.Trust, release.Signer) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "private.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=.ci/tools/cosign.mod", "cosign",
		"import-key-pair", "--key="+file, "--output-key-prefix="+filepath.Join(folder, "cosign"))
	cmd.Dir, cmd.Env = checkout, append(os.Environ(), "COSIGN_PASSWORD=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("import a key: %v: %s", err, out)
	}
	return release.Trust{Key: filepath.Join(folder, "cosign.pub")}, release.Signer{Key: filepath.Join(folder, "cosign.key")}
}
