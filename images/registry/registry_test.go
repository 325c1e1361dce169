package registry_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/nstance/nstance/images/registry"
)

// open serves a folder until the test ends, or until the returned function is called.
func open(t *testing.T, folder string) (host string, closed func()) {
	t.Helper()
	r, err := registry.Open(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), s.Close
}

func reference(t *testing.T, text string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestReopened: an index, its images, what refers to it and the index of indexes
// are all there after the registry has ended and begun again.
func TestReopened(t *testing.T) {
	folder := t.TempDir()
	index, err := random.Index(512, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	outer := mutate.AppendManifests(index, mutate.IndexAddendum{Add: index})
	subject, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}

	host, closed := open(t, folder)
	if err := remote.WriteIndex(reference(t, host+"/tools/outer:v1"), outer); err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(reference(t, host+"/tools/outer:note"), about(t, index)); err != nil {
		t.Fatal(err)
	}
	closed()

	host, _ = open(t, folder)
	got, err := remote.Index(reference(t, host+"/tools/outer:v1"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := outer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := got.Digest(); err != nil || digest != want {
		t.Errorf("the index is %s (%v), want %s", digest, err, want)
	}
	referrers, err := remote.Referrers(reference(t, host+"/tools/outer@"+subject.String()).(name.Digest))
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err := referrers.IndexManifest(); err != nil || len(manifest.Manifests) != 1 {
		t.Errorf("%v refer to the index (%v), want one", manifest, err)
	}
}

// about is an image that refers to an index.
func about(t *testing.T, index v1.ImageIndex) v1.Image {
	t.Helper()
	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	size, err := index.Size()
	if err != nil {
		t.Fatal(err)
	}
	kind, err := index.MediaType()
	if err != nil {
		t.Fatal(err)
	}
	return mutate.Subject(image, v1.Descriptor{MediaType: kind, Digest: digest, Size: size}).(v1.Image)
}

// TestRefused: what can't be taken is refused, and not kept.
func TestRefused(t *testing.T) {
	folder := t.TempDir()
	host, _ := open(t, folder)
	for _, c := range []struct{ name, kind, body string }{
		{"an index of images that are not there", "application/vnd.oci.image.index.v1+json",
			`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":2,` +
				`"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}]}`},
		{"too long", "application/vnd.oci.image.manifest.v1+json", strings.Repeat(" ", 5<<20)},
	} {
		req, err := http.NewRequest(http.MethodPut, "http://"+host+"/v2/tools/x/manifests/v1", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.kind)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode < 400 {
			t.Errorf("%s: answered %s", c.name, answer.Status)
		}
	}
	if kept, err := os.ReadDir(filepath.Join(folder, "manifests")); err != nil || len(kept) != 0 {
		t.Errorf("kept %v (%v)", kept, err)
	}
}

// TestDamaged: a folder that was written into by others is named, not served.
func TestDamaged(t *testing.T) {
	folder := t.TempDir()
	open(t, folder)
	damaged := filepath.Join(folder, "manifests", "x.json")
	if err := os.WriteFile(damaged, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Open(t.Context(), folder); err == nil || !strings.Contains(err.Error(), damaged) {
		t.Errorf("opened with %v, want an error that names %s", err, damaged)
	}
}
