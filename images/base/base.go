// Package base makes the image that others are built on where no registry can be
// reached: what gcr.io/distroless/static has too and a static program needs, no
// more. It names the user 65532, trusts the roots that Mozilla trusts, and has a
// folder for temporary files. There is no shell and no package manager.
//
// Two runs give the same digest: all times are zero, and the roots are those of
// the module version that go.mod pins.
package base

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// User is what programs run as, in the image's own base and in distroless's
// `nonroot` alike.
const User = "65532"

// certificates is where Go, and everything else on Linux, looks for roots first.
const certificates = "etc/ssl/certs/ca-certificates.crt"

const passwd = `root:x:0:0:root:/root:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin
`

const group = `root:x:0:
nogroup:x:65534:
nonroot:x:65532:
`

// Index is the base for linux on each architecture, as an OCI image index. Its
// images differ only in the architecture that they name.
func Index(architectures []string) (v1.ImageIndex, error) {
	content, err := files()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer),
	)
	if err != nil {
		return nil, fmt.Errorf("compress the base's files: %w", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range architectures {
		image, err := image(architecture, layer)
		if err != nil {
			return nil, fmt.Errorf("base for %s: %w", architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image,
			Descriptor: v1.Descriptor{
				MediaType: types.OCIManifestSchema1,
				Platform:  &v1.Platform{OS: "linux", Architecture: architecture},
			},
		})
	}
	return index, nil
}

// image is the base for one architecture.
func image(architecture string, layer v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", architecture
	config.Config.User = User
	config.Config.WorkingDir = "/home/nonroot"
	config.Config.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "SSL_CERT_FILE=/" + certificates}
	return mutate.ConfigFile(image, config)
}

// files is the base's only layer, as a tar archive.
func files() ([]byte, error) {
	roots := new(bytes.Buffer)
	for root := range bundle.Roots() {
		if err := pem.Encode(roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, fmt.Errorf("write the roots: %w", err)
		}
	}
	out := new(bytes.Buffer)
	w := tar.NewWriter(out)
	for _, entry := range []struct {
		name  string
		mode  int64
		owner int
		body  string // of a file; a folder's name ends with a slash
	}{
		{"etc/", 0o755, 0, ""},
		{"etc/passwd", 0o644, 0, passwd},
		{"etc/group", 0o644, 0, group},
		{"etc/nsswitch.conf", 0o644, 0, "hosts: files dns\n"},
		{"etc/ssl/", 0o755, 0, ""},
		{"etc/ssl/certs/", 0o755, 0, ""},
		{certificates, 0o644, 0, roots.String()},
		{"home/", 0o755, 0, ""},
		{"home/nonroot/", 0o700, 65532, ""},
		{"root/", 0o700, 0, ""},
		{"tmp/", 0o1777, 0, ""},
	} {
		header := &tar.Header{
			Name: entry.name, Mode: entry.mode, Uid: entry.owner, Gid: entry.owner, Size: int64(len(entry.body)),
			Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
		}
		if entry.name[len(entry.name)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("write %s: %w", entry.name, err)
		}
		if _, err := io.WriteString(w, entry.body); err != nil {
			return nil, fmt.Errorf("write %s: %w", entry.name, err)
		}
	}
	return out.Bytes(), w.Close()
}
