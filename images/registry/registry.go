// Package registry is a small container registry for one machine: what images are
// pushed to where no other registry is, signatures and attestations among them. It
// speaks the OCI distribution protocol (go-containerregistry's handler, with the
// referrers API), keeps everything in a folder and survives kill -9. It asks for no
// password, so it is for loopback addresses only.
package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// FolderHeader names, in each answer, the folder that a registry keeps everything in.
const FolderHeader = "Nstance-Registry-Folder"

// manifestLimit bounds a manifest, in bytes; the protocol asks registries for at
// least 4 MiB.
const manifestLimit = 4 << 20

// Registry serves what its folder holds. It is safe for concurrent use.
type Registry struct {
	folder string
	served http.Handler
}

// stored is a manifest as the folder keeps it: which path it was pushed to, as what.
type stored struct {
	Path      string `json:"path"`
	MediaType string `json:"media_type"`
	Body      []byte `json:"body"`
}

// Open serves what is in folder, which is made when it is not there.
func Open(ctx context.Context, folder string) (*Registry, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("open registry: %w", err)
	}
	for _, name := range []string{"blobs", "manifests"} {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o755); err != nil {
			return nil, fmt.Errorf("open registry: %w", err)
		}
	}
	r := &Registry{folder: folder, served: registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(filepath.Join(folder, "blobs"))),
		registry.WithReferrersSupport(true),
		registry.Logger(log.New(io.Discard, "", 0)),
	)}
	if err := r.load(ctx); err != nil {
		return nil, fmt.Errorf("open registry in %s: %w", folder, err)
	}
	return r, nil
}

// ServeHTTP answers a request. A manifest is on disk before its push is
// acknowledged.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set(FolderHeader, r.folder)
	switch {
	case req.Method == http.MethodPut && isManifest(req.URL.Path):
		r.push(w, req)
	case req.Method == http.MethodDelete && isManifest(req.URL.Path):
		// Gone from disk first, or a crash would bring it back.
		if err := os.Remove(r.file(req.URL.Path)); err != nil && !errors.Is(err, os.ErrNotExist) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		r.served.ServeHTTP(w, req)
	default:
		r.served.ServeHTTP(w, req)
	}
}

// push takes a manifest.
func (r *Registry) push(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, manifestLimit))
	if err != nil {
		http.Error(w, "the manifest is cut short, or longer than 4 MiB", http.StatusBadRequest)
		return
	}
	m := stored{Path: req.URL.Path, MediaType: req.Header.Get("Content-Type"), Body: body}
	answer := r.put(req.Context(), m)
	if answer.Code == http.StatusCreated {
		if err := r.save(m); err != nil {
			http.Error(w, err.Error(), http.StatusInsufficientStorage)
			return
		}
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the client may have gone
}

// isManifest reports whether a path names a manifest: /v2/{name}/manifests/{reference}.
func isManifest(path string) bool {
	parts := strings.Split(path, "/")
	return len(parts) > 4 && parts[len(parts)-2] == "manifests"
}

// put hands a manifest to the handler, which keeps it in memory.
func (r *Registry) put(ctx context.Context, m stored) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(ctx, http.MethodPut, "http://registry.invalid/", bytes.NewReader(m.Body))
	req.URL.Path = m.Path
	req.Header.Set("Content-Type", m.MediaType)
	answer := httptest.NewRecorder()
	r.served.ServeHTTP(answer, req)
	return answer
}

// file is where a manifest is kept that was pushed to a path.
func (r *Registry) file(path string) string {
	name := sha256.Sum256([]byte(path))
	return filepath.Join(r.folder, "manifests", hex.EncodeToString(name[:])+".json")
}

// save writes a manifest to the folder, whole or not at all.
func (r *Registry) save(m stored) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("save manifest: %w", err)
	}
	whole := r.file(m.Path)
	part, err := os.CreateTemp(filepath.Dir(whole), ".part-*")
	if err != nil {
		return fmt.Errorf("save manifest: %w", err)
	}
	defer os.Remove(part.Name())
	_, err = part.Write(text)
	for _, finish := range []func() error{part.Sync, part.Close} {
		if ended := finish(); err == nil {
			err = ended
		}
	}
	if err == nil {
		err = os.Rename(part.Name(), whole)
	}
	if err != nil {
		return fmt.Errorf("save manifest: %w", err)
	}
	return nil
}

// load hands what the folder holds to the handler. It takes an index only after
// the images that this names, so they come first; then indexes, as often as one
// more of them is taken, for an index may name another.
func (r *Registry) load(ctx context.Context) error {
	names, err := filepath.Glob(filepath.Join(r.folder, "manifests", "*.json"))
	if err != nil {
		return err
	}
	var images, indexes []stored
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var m stored
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if types.MediaType(m.MediaType).IsIndex() {
			indexes = append(indexes, m)
		} else {
			images = append(images, m)
		}
	}
	refused := func(m stored) bool { return r.put(ctx, m).Code != http.StatusCreated }
	if i := slices.IndexFunc(images, refused); i >= 0 {
		return fmt.Errorf("%s is no manifest any more", images[i].Path)
	}
	for len(indexes) > 0 {
		left := slices.DeleteFunc(slices.Clone(indexes), func(m stored) bool { return !refused(m) })
		if len(left) == len(indexes) {
			return fmt.Errorf("%s names manifests that are not there", left[0].Path)
		}
		indexes = left
	}
	return nil
}
