package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Target says what is built, and where it goes.
type Target struct {
	Repository string   // where images are pushed to, as repository/program:version
	Base       string   // the image that they are built on; empty: the one of .ko.yaml
	Programs   []string // some of Programs
	Cache      string   // Go's build cache for the programs; empty: that of the environment
}

// Validate says what is wrong with a target.
func (t Target) Validate() error {
	repository, err := name.NewRepository(t.Repository)
	if err != nil {
		return fmt.Errorf("repository %q: %w", t.Repository, err)
	}
	for _, program := range t.Programs {
		if !slices.Contains(Programs(), program) {
			return fmt.Errorf("program %q: want some of %s", program, strings.Join(Programs(), ", "))
		}
	}
	// ko writes the base's name into annotations and SBOMs, so it would be published.
	if t.Base != "" && !local(t.Repository) {
		base, err := name.ParseReference(t.Base)
		if err != nil {
			return fmt.Errorf("base image %q: %w", t.Base, err)
		}
		if local(base.Context().Name()) {
			return fmt.Errorf("base image %q: images for %s can't be built on one that only this machine has: unset KO_DEFAULTBASEIMAGE",
				t.Base, repository)
		}
	}
	return nil
}

// local reports whether what a reference names is in a registry of this machine.
func local(reference string) bool {
	for _, prefix := range []string{"127.", "localhost:", "[::1]:"} {
		if strings.HasPrefix(reference, prefix) {
			return true
		}
	}
	return false
}

// Build builds the target, pushes it, and keeps what was pushed for Sign and Verify.
func (b Builder) Build(ctx context.Context, target Target) (Release, error) {
	if err := target.Validate(); err != nil {
		return Release{}, err
	}
	if err := os.MkdirAll(b.Work, 0o755); err != nil {
		return Release{}, fmt.Errorf("build images: %w", err)
	}
	from, err := b.commit(ctx)
	if err != nil {
		return Release{}, err
	}
	if from.dirty && !local(target.Repository) {
		return Release{}, fmt.Errorf("build images for %s: %w", target.Repository, errDirty)
	}
	// What ko pushes goes to a registry of its own first: it adds unsigned SBOMs to those that
	// others may write to.
	staging := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer staging.Close()
	release := Release{Version: from.version, Commit: from.hash}
	for _, program := range target.Programs {
		image, err := b.image(ctx, target, from, program, strings.TrimPrefix(staging.URL, "http://"))
		if err != nil {
			return Release{}, fmt.Errorf("build image %s: %w", program, err)
		}
		release.Images = append(release.Images, image)
	}
	return release, save(b.Work, release)
}

// image builds one program's image and pushes it.
func (b Builder) image(ctx context.Context, target Target, from commit, program, staging string) (Image, error) {
	sboms, err := filepath.Abs(filepath.Join(b.Work, "sbom"))
	if err != nil {
		return Image{}, err
	}
	args := []string{
		"build", "./cmd/" + program, "--bare", "--tags=staged", "--sbom=spdx", "--sbom-dir=" + sboms,
		"--platform=linux/" + strings.Join(Architectures(), ",linux/"),
	}
	for _, label := range labels(program, from) {
		args = append(args, "--image-label="+label, "--image-annotation="+label)
	}
	env := []string{
		"KO_DOCKER_REPO=" + staging + "/" + program, "VERSION=" + from.version,
		"SOURCE_DATE_EPOCH=" + from.epoch, "KO_DATA_DATE_EPOCH=" + from.epoch,
	}
	if target.Cache != "" {
		env = append(env, "GOCACHE="+target.Cache)
	}
	if target.Base != "" {
		env = append(env, "KO_DEFAULTBASEIMAGE="+target.Base)
	}
	built, err := b.tool(ctx, "ko", env, args...)
	if err != nil {
		return Image{}, err
	}
	return push(ctx, built, target.Repository+"/"+program, from.version, program, sboms)
}

// labels say what an image is, in the words of the OCI.
func labels(program string, from commit) []string {
	const prefix, home = "org.opencontainers.image.", "https://github.com/nstance/nstance"
	return []string{
		prefix + "title=" + program,
		prefix + "description=" + descriptions()[program],
		prefix + "version=" + from.version,
		prefix + "revision=" + from.hash,
		prefix + "source=" + home,
		prefix + "documentation=" + home + "/tree/main/docs",
		prefix + "licenses=Apache-2.0",
		prefix + "vendor=Nstance",
	}
}

func descriptions() map[string]string {
	return map[string]string{
		"nstance-server":   "Keeps groups of machines at their size",
		"nstance-agent":    "Gives a machine its identity and files",
		"nstance-operator": "Makes Nstance a provider of Cluster API",
		"nstance-admin":    "Asks and changes what shards hold",
		"nstance-asg":      "Speaks for a server to the Auto Scaling group of its machine",
	}
}

// push copies what ko built to where it belongs, without what ko put beside it.
func push(ctx context.Context, built, repository, version, program, sboms string) (Image, error) {
	from, err := name.ParseReference(built)
	if err != nil {
		return Image{}, fmt.Errorf("ko printed %q: %w", built, err)
	}
	index, err := remote.Index(from, remote.WithContext(ctx))
	if err != nil {
		return Image{}, fmt.Errorf("read what ko built: %w", err)
	}
	reference, err := PushIndex(ctx, index, repository, version)
	if err != nil {
		return Image{}, err
	}
	image := Image{Name: program, Reference: reference}
	manifest, err := index.IndexManifest()
	if err != nil {
		return Image{}, err
	}
	for _, of := range manifest.Manifests {
		platform, err := describe(index, of, repository, filepath.Join(sboms, program+"-linux-"+of.Platform.Architecture+".spdx.json"))
		if err != nil {
			return Image{}, err
		}
		image.Platforms = append(image.Platforms, platform)
	}
	return image, nil
}

// PushIndex pushes an index and what it names to repository:tag, and returns its
// reference by digest.
func PushIndex(ctx context.Context, index v1.ImageIndex, repository, tag string) (string, error) {
	to, err := name.NewTag(repository + ":" + tag)
	if err != nil {
		return "", fmt.Errorf("push to %s:%s: %w", repository, tag, err)
	}
	if err := remote.WriteIndex(to, index, options(ctx)...); err != nil {
		return "", fmt.Errorf("push to %s: %w", to, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return "", fmt.Errorf("push to %s: %w", to, err)
	}
	return to.Context().Digest(digest.String()).String(), nil
}

// describe says what of an index is the image for one architecture.
func describe(index v1.ImageIndex, of v1.Descriptor, repository, sbom string) (Platform, error) {
	if _, err := os.Stat(sbom); err != nil {
		return Platform{}, fmt.Errorf("ko wrote no SBOM for %s: %w", of.Platform, err)
	}
	image, err := index.Image(of.Digest)
	if err != nil {
		return Platform{}, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return Platform{}, err
	}
	size := of.Size + manifest.Config.Size
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	if of.Platform.OS != "linux" {
		return Platform{}, errors.New("an image for " + of.Platform.String())
	}
	return Platform{
		Architecture: of.Platform.Architecture, SBOM: sbom, Size: size,
		Reference: repository + "@" + of.Digest.String(),
	}, nil
}
