// Package registrytest has helpers for tests of images and their signatures: registries in
// memory, and signatures like those of cosign.
package registrytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/nstance/nstance/pkg/provider/docker/signature"
)

// SBOM is the predicate type of an attested SBOM.
const SBOM = "https://spdx.dev/Document"

// Serve serves a registry until the test ends, and returns its host and port.
func Serve(t testing.TB, handler http.Handler) (host string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// Image returns a small image, a different one each time.
func Image(t testing.TB) v1.Image {
	t.Helper()
	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// Push pushes an image, and returns its name by digest.
func Push(t testing.TB, reference string, image v1.Image) string {
	t.Helper()
	to, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, image); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return to.Context().Digest(digest.String()).Name()
}

// Signer signs with a key as cosign does.
type Signer struct{ key *ecdsa.PrivateKey }

// NewSigner generates a key.
func NewSigner(t testing.TB) Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return Signer{key}
}

// Key returns the public key.
func (s Signer) Key(t testing.TB) signature.Key {
	t.Helper()
	key, err := signature.ParseKey(s.pem(t))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// File writes the public key to a file.
func (s Signer) File(t testing.TB) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "cosign.pub")
	if err := os.WriteFile(path, s.pem(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s Signer) pem(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(s.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// Bundle returns a signed statement of a type about a digest.
func (s Signer) Bundle(t testing.TB, predicate, digest string) []byte {
	t.Helper()
	return s.BundleOf(t, predicate, "", digest)
}

// BundleOf returns a signed statement of a type about a digest, which names a repository.
func (s Signer) BundleOf(t testing.TB, predicate, repository, digest string) []byte {
	t.Helper()
	const kind = "application/vnd.in-toto+json"
	payload := fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":%q,"digest":{"sha256":%q}}],"predicateType":%q}`,
		repository, strings.TrimPrefix(digest, "sha256:"), predicate)
	sum := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload))
	sig, err := ecdsa.SignASN1(rand.Reader, s.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{
		"mediaType": signature.BundleType,
		"dsseEnvelope": map[string]any{
			"payload": []byte(payload), "payloadType": kind, "signatures": []map[string]any{{"sig": sig}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Sign signs the image that reference names by its digest, and returns the digest of the
// manifest with the signature.
func (s Signer) Sign(t testing.TB, reference string) (manifest string) {
	t.Helper()
	_, digest, _ := strings.Cut(reference, "@")
	return Attach(t, reference, s.Bundle(t, signature.PredicateType, digest), signature.PredicateType)
}

// Attach pushes a bundle about the image that reference names by its digest, annotated with the
// predicate type.
func Attach(t testing.TB, reference string, bundle []byte, predicate string) (manifest string) {
	t.Helper()
	return attach(t, reference, bundle, signature.BundleType, map[string]string{"dev.sigstore.bundle.predicateType": predicate})
}

// AttachOther pushes another artifact about an image.
func AttachOther(t testing.TB, reference string) {
	t.Helper()
	attach(t, reference, []byte("{}"), "application/vnd.example+json", nil)
}

func attach(t testing.TB, reference string, content []byte, kind types.MediaType, annotations map[string]string) (manifest string) {
	t.Helper()
	const noConfig = "application/vnd.oci.empty.v1+json"
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), noConfig),
		static.NewLayer(content, kind))
	if err != nil {
		t.Fatal(err)
	}
	about, err := name.NewDigest(reference)
	if err != nil {
		t.Fatal(err)
	}
	subject, err := remote.Head(about)
	if err != nil {
		t.Fatal(err)
	}
	attached := mutate.Subject(mutate.Annotations(image, annotations).(v1.Image), *subject).(v1.Image)
	digest, err := attached.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(about.Context().Digest(digest.String()), attached); err != nil {
		t.Fatal(err)
	}
	return digest.String()
}
