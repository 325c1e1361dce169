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

// TestVerifierAgreesWithCosign: the server's own verification, which does not link cosign, has the
// same result as cosign for each image.
func TestVerifierAgreesWithCosign(t *testing.T) {
	f := newFixture(t)
	signed := f.image(t, "signed")
	if err := f.Sign(t.Context(), signed, f.signer); err != nil {
		t.Fatal(err)
	}
	_, other := f.keys(t, "other")
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
		{"signed", signed, f.trust, ""},
		{"another key", signed, other, "another key"},
		{"unsigned", f.image(t, "unsigned"), f.trust, "has none for it"},
		{"the signature of another image", f.moved(t, signed), f.trust, "a signature of another image"},
		{"an SBOM only", f.onlyAttested(t), f.trust, "which is not a signature"},
	} {
		for _, reference := range c.made.Images[0].References() {
			byTag, err := registry.New("").Resolve(t.Context(), reference)
			if err != nil || byTag != reference {
				t.Fatalf("%s: %s resolves to %s, %v", c.name, reference, byTag, err)
			}
			ours := registry.New("").Verify(t.Context(), reference, key(c.trust), &registry.Seen{})
			theirs := f.VerifyStatement(t.Context(), reference, signature.PredicateType, c.trust)
			if (ours == nil) != (theirs == nil) || (ours == nil) != (c.want == "") {
				t.Errorf("%s: %s: the server says %v, cosign %v", c.name, reference, ours, theirs)
			}
			if ours != nil && (!errors.Is(ours, provider.ErrInvalid) || !strings.Contains(ours.Error(), c.want)) {
				t.Errorf("%s: %s: %v, want ErrInvalid with %q", c.name, reference, ours, c.want)
			}
		}
	}
}

// onlyAttested is an image for one architecture of which only an SBOM is signed.
func (f *fixture) onlyAttested(t *testing.T) release.Release {
	t.Helper()
	made := f.image(t, "attested")
	if err := f.Sign(t.Context(), made, f.signer); err != nil {
		t.Fatal(err)
	}
	platform := made.Images[0].Platforms[0].Reference
	for _, of := range bundles(t, platform) {
		if f.isSignature(t, platform, of) {
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

// isSignature reports whether a bundle claims to be the signature of an image.
func (f *fixture) isSignature(t *testing.T, reference string, of v1.Descriptor) bool {
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

// TestKindsOfKeys: cosign's signatures verify with every kind of key that the server supports.
func TestKindsOfKeys(t *testing.T) {
	f := newFixture(t)
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
			trust, signer := f.imported(t, private)
			made := f.image(t, name)
			made.Images[0].Platforms = nil
			if err := f.Sign(t.Context(), made, signer); err != nil {
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
			if err := registry.New("").Verify(t.Context(), made.Images[0].Reference, key, &registry.Seen{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWithoutReferrers: in a registry without the referrers API, cosign's signature is found by the
// fallback tag.
func TestWithoutReferrers(t *testing.T) {
	f := newFixture(t)
	f.host = registrytest.Serve(t, registrytest.Handler(false))
	made := f.image(t, "signed")
	made.Images[0].Platforms = nil
	text, err := os.ReadFile(f.trust.Key)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signature.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	reference := made.Images[0].Reference
	if err := registry.New("").Verify(t.Context(), reference, key, &registry.Seen{}); !errors.Is(err, provider.ErrInvalid) {
		t.Errorf("unsigned: %v", err)
	}
	if err := f.Sign(t.Context(), made, f.signer); err != nil {
		t.Fatal(err)
	}
	if err := registry.New("").Verify(t.Context(), reference, key, &registry.Seen{}); err != nil {
		t.Error(err)
	}
}

// imported makes cosign import a key that was created elsewhere.
func (f *fixture) imported(t *testing.T, private any) (release.Trust, release.Signer) {
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
