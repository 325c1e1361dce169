//go:build integration

package containers

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/moby/moby/client"

	"github.com/nstance/nstance/images/base"
	"github.com/nstance/nstance/images/registry"
	"github.com/nstance/nstance/images/release"
)

// StandIn returns the reference of an image that the environment names, by a variable such as
// MINIO_IMAGE, or of its stand-in from `make integration-images`. Without either it ends the test.
func (w *World) StandIn(name string) string {
	w.Helper()
	variable := strings.ToUpper(name) + "_IMAGE"
	if named := os.Getenv(variable); named != "" {
		if _, err := w.API.ImageInspect(w.Context(), named); err != nil {
			w.Must(pull(w.Context(), w.API, named, pullWithin))
		}
		return named
	}
	folder := w.StandInFolder(name)
	reference := "nstance-stand-in/" + strings.Replace(filepath.Base(folder), name+"-", name+":", 1)
	if _, err := w.API.ImageInspect(w.Context(), reference); err == nil {
		return reference
	}
	w.Must(importImage(w.Context(), w.API, folder, reference))
	return reference
}

// StandInFolder returns the folder of a stand-in from `make integration-images`: the image, and
// other files of its recipe. If it is not built, the test ends.
func (w *World) StandInFolder(name string) string {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), filepath.Join(w.Root, ".ci", "stand-in"), "-n", name)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		why := cmp.Or(strings.TrimSpace(problem.String()), err.Error())
		miss(w.T, "no image for %s: %s; %s_IMAGE= names a real one", name, why, strings.ToUpper(name))
	}
	return strings.TrimSpace(string(out))
}

// Pull makes the engine pull an image.
func (w *World) Pull(reference string) error { return pull(w.Context(), w.API, reference, pullWithin) }

// importImage creates an image from the files of .ci/stand-in in a folder.
func importImage(ctx context.Context, api *client.Client, folder, reference string) error {
	changes, err := os.ReadFile(filepath.Join(folder, "changes"))
	if err != nil {
		return fmt.Errorf("import %s: %w", reference, err)
	}
	rootfs, err := os.Open(filepath.Join(folder, "rootfs.tar"))
	if err != nil {
		return fmt.Errorf("import %s: %w", reference, err)
	}
	defer rootfs.Close()
	done, err := api.ImageImport(ctx, client.ImageImportSource{Source: rootfs, SourceName: "-"}, reference,
		client.ImageImportOptions{Changes: strings.Split(strings.TrimSpace(string(changes)), "\n")})
	if err != nil {
		return fmt.Errorf("import %s: %w", reference, err)
	}
	defer done.Close()
	// The image exists at the end of the response, which also has any error.
	said, err := io.ReadAll(done)
	if err == nil {
		_, err = api.ImageInspect(ctx, reference)
	}
	if err != nil {
		return fmt.Errorf("import %s: %w: %.500s", reference, err, said)
	}
	return nil
}

// Product builds images of the product from this tree, as `make images` does, without the engine;
// serves them from a registry on a loopback port until the test ends; and makes the engine pull
// them. It returns their references by digest, by program.
func (w *World) Product(programs ...string) map[string]string {
	w.Helper()
	served, err := registry.Open(w.Context(), filepath.Join(w.Dir, "registry"))
	w.Must(err)
	server := httptest.NewServer(served)
	w.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	index, err := base.Index(release.Architectures())
	w.Must(err)
	from, err := release.PushIndex(w.Context(), index, host+"/base/static", "local")
	w.Must(err)
	var said strings.Builder
	builder := release.Builder{Source: w.Root, Work: filepath.Join(w.Dir, "images"), Output: &said}
	built, err := builder.Build(w.Context(), release.Target{Repository: host + "/" + w.Cluster, Base: from, Programs: programs})
	if err != nil {
		w.Fatalf("build the images of %s: %v\n%s", strings.Join(programs, ", "), err, said.String())
	}
	references := map[string]string{}
	for _, image := range built.Images {
		w.Must(pull(w.Context(), w.API, image.Reference, pullWithin))
		references[image.Name] = image.Reference
		for _, platform := range image.Platforms {
			w.Logf("%s for %s: %.1f MB to pull", image.Name, platform.Architecture, float64(platform.Size)/1e6)
		}
	}
	return references
}
