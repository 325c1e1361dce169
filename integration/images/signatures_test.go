//go:build integration

package images_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/nstance/nstance/images/release"
)

// TestVerificationFails: signed images verify, and nothing else does that an attacker who can write
// to the registry might offer.
func TestVerificationFails(t *testing.T) {
	f := newFixture(t)
	signed := f.image(t, "signed")
	if err := f.Sign(t.Context(), signed, f.signer); err != nil {
		t.Fatal(err)
	}
	if err := f.Verify(t.Context(), signed, f.trust); err != nil {
		t.Fatalf("what was signed does not verify: %v", err)
	}
	_, other := f.keys(t, "other")

	for _, c := range []struct {
		name string
		made func(*testing.T) release.Release
		key  release.Trust
		want string
	}{
		{"unsigned", func(t *testing.T) release.Release { return f.image(t, "unsigned") }, f.trust, "signature of unsigned"},
		{"signed with another key", func(*testing.T) release.Release { return signed }, other, "signature of signed"},
		{"signature of another image", func(t *testing.T) release.Release { return f.moved(t, signed) }, f.trust, "signature of moved"},
		{"no SBOM", func(t *testing.T) release.Release { return f.onlySigned(t) }, f.trust, "SBOM of only-signed"},
		{"no image", func(*testing.T) release.Release { return release.Release{} }, f.trust, "no images to verify"},
		{"no signer is trusted", func(*testing.T) release.Release { return signed }, release.Trust{}, "whose signature counts"},
		// It comes last, as it damages signed images.
		{"a layer that is another one", func(t *testing.T) release.Release { return f.altered(t, signed) }, f.trust, "is not what was signed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := f.Verify(t.Context(), c.made(t), c.key)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("verified with %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestSBOMIsNoSignature: an image of which only an SBOM is signed does not count as signed,
// although a verifier that checks no statement type would accept it.
func TestSBOMIsNoSignature(t *testing.T) {
	f := newFixture(t)
	made := f.onlyAttested(t)
	platform := made.Images[0].Reference
	err := f.Verify(t.Context(), made, f.trust)
	if err == nil || !strings.Contains(err.Error(), "signature of attested") || !strings.Contains(err.Error(), platform) {
		t.Errorf("verified with %v, want an error about the signature of %s", err, platform)
	}
}

// TestArchivesAreVerified: signed archives verify, and nothing else does.
func TestArchivesAreVerified(t *testing.T) {
	f := newFixture(t)
	_, other := f.keys(t, "other")
	folder := filepath.Join(f.Work, "dist")
	names, err := f.Dist(t.Context(), folder, []release.Archive{{OS: "linux", Architecture: "amd64", Programs: []string{"nstance-agent"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.VerifyDist(t.Context(), folder, f.trust); err == nil {
		t.Error("what was not signed verifies")
	}
	if err := f.SignDist(t.Context(), folder, f.signer); err != nil {
		t.Fatal(err)
	}
	if err := f.VerifyDist(t.Context(), folder, f.trust); err != nil {
		t.Fatalf("what was signed does not verify: %v", err)
	}
	if err := f.VerifyDist(t.Context(), folder, other); err == nil {
		t.Error("what another key signed verifies")
	}
	archive, list := filepath.Join(folder, names[0]), filepath.Join(folder, "SHA256SUMS")
	body, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	body[len(body)/2] ^= 1
	if err := os.WriteFile(archive, body, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.VerifyDist(t.Context(), folder, f.trust); err == nil || !strings.Contains(err.Error(), names[0]) {
		t.Errorf("an altered archive: %v", err)
	}
	sum := sha256.Sum256(body)
	if err := os.WriteFile(list, []byte(hex.EncodeToString(sum[:])+"  "+names[0]+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.VerifyDist(t.Context(), folder, f.trust); err == nil || !strings.Contains(err.Error(), "signature of") {
		t.Errorf("sums that were altered with it: %v", err)
	}
}

// TestChartIsSigned: the chart in a registry is signed by its digest.
func TestChartIsSigned(t *testing.T) {
	f := newFixture(t)
	operator := f.image(t, "nstance-operator")
	paths, err := f.Chart(t.Context(), operator, filepath.Join(f.Work, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	path := paths[0]
	reference, err := f.PushChart(t.Context(), operator, path, f.host+"/charts", f.signer, f.trust)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Image(digest(t, reference)); err != nil {
		t.Errorf("the registry has no chart %s: %v", reference, err)
	}
	_, other := f.keys(t, "other")
	if reference, err := f.PushChart(t.Context(), operator, path, f.host+"/charts", f.signer, other); err == nil {
		t.Errorf("%s verifies with a key that has not signed it", reference)
	}
	_, err = f.PushChart(t.Context(), operator, path, "registry.example.com/charts", f.signer, f.trust)
	if err == nil || !strings.Contains(err.Error(), "on this machine only") {
		t.Errorf("a chart whose image no other machine can pull: %v", err)
	}
}

// moved is an image to which the bundles of another one were made to refer.
func (f *fixture) moved(t *testing.T, from release.Release) release.Release {
	t.Helper()
	to := f.image(t, "moved")
	sources, targets := from.Images[0].References(), to.Images[0].References()
	for i, source := range sources {
		target := digest(t, targets[i])
		subject, err := remote.Head(target)
		if err != nil {
			t.Fatal(err)
		}
		all := bundles(t, source)
		if len(all) == 0 {
			t.Fatalf("nothing refers to %s", source)
		}
		for _, of := range all {
			image, err := remote.Image(digest(t, source).Context().Digest(of.Digest.String()))
			if err != nil {
				t.Fatal(err)
			}
			copied := mutate.Subject(image, *subject).(v1.Image)
			if err := remote.Write(target.Context().Tag("moved-"+of.Digest.Hex[:12]), copied); err != nil {
				t.Fatal(err)
			}
		}
		if got := bundles(t, targets[i]); len(got) != len(all) {
			t.Fatalf("%d bundles refer to the other image, want %d", len(got), len(all))
		}
	}
	return to
}

// onlySigned is a signed image without SBOM.
func (f *fixture) onlySigned(t *testing.T) release.Release {
	t.Helper()
	made := f.image(t, "only-signed")
	without := made.Images[0]
	without.Platforms = nil
	if err := f.Sign(t.Context(), release.Release{Images: []release.Image{without}}, f.signer); err != nil {
		t.Fatal(err)
	}
	platform := without
	platform.Reference = made.Images[0].Platforms[0].Reference
	if err := f.Sign(t.Context(), release.Release{Images: []release.Image{platform}}, f.signer); err != nil {
		t.Fatal(err)
	}
	return made
}

// altered is an image with a modified layer in the registry.
func (f *fixture) altered(t *testing.T, from release.Release) release.Release {
	t.Helper()
	ref, err := name.ParseReference(from.Images[0].Platforms[0].Reference)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	layer := manifest.Layers[0]
	blob := filepath.Join(f.folder, "blobs", layer.Digest.Algorithm, layer.Digest.Hex)
	content, err := os.ReadFile(blob)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(blob, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return from
}
