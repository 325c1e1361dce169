package base_test

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"io"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/nstance/nstance/images/base"
)

func index(t *testing.T) v1.ImageIndex {
	t.Helper()
	index, err := base.Index([]string{"amd64", "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// TestIndexRepeats: the base's digest is part of that of every image.
func TestIndexRepeats(t *testing.T) {
	first, err := index(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	second, err := index(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("made twice: %s and %s", first, second)
	}
}

// TestIndex: each architecture has its image, which runs without privileges and holds what
// a static program looks for.
func TestIndex(t *testing.T) {
	index := index(t)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var architectures []string
	for _, of := range manifest.Manifests {
		architectures = append(architectures, of.Platform.OS+"/"+of.Platform.Architecture)
		image, err := index.Image(of.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != of.Platform.Architecture || config.Config.User != base.User {
			t.Errorf("%s: its config names %s and user %q", of.Platform, config.Architecture, config.Config.User)
		}
		files := contents(t, image)
		if roots := x509.NewCertPool(); !roots.AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"].body) {
			t.Errorf("%s: no roots in the CA bundle", of.Platform)
		}
		for name, mode := range map[string]int64{"tmp/": 0o1777, "home/nonroot/": 0o700, "etc/passwd": 0o644} {
			if got, ok := files[name]; !ok || got.header.Mode != mode {
				t.Errorf("%s: %s has mode %o, want %o", of.Platform, name, got.header.Mode, mode)
			}
		}
	}
	if len(architectures) != 2 || architectures[0] != "linux/amd64" || architectures[1] != "linux/arm64" {
		t.Errorf("the index is for %v", architectures)
	}
}

// entry is one file of an image.
type entry struct {
	header tar.Header
	body   []byte
}

func contents(t *testing.T, image v1.Image) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	flat := mutate.Extract(image)
	defer flat.Close()
	for r := tar.NewReader(flat); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := header.Name
		if header.Typeflag == tar.TypeDir && name[len(name)-1] != '/' {
			name += "/"
		}
		all[name] = entry{header: *header, body: body}
	}
}
