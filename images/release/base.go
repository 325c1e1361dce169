package release

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"
)

// CheckBase fails when the base image that a .ko.yaml names by tag and digest is not
// what its registry has under that tag now, or lacks an architecture. It returns the
// reference by digest.
func CheckBase(ctx context.Context, file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("check the base image: %w", err)
	}
	var config struct {
		DefaultBaseImage string `json:"defaultBaseImage"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return "", fmt.Errorf("check the base image: %s: %w", file, err)
	}
	pinned, err := name.NewDigest(config.DefaultBaseImage)
	if err != nil {
		return "", fmt.Errorf("check the base image: %s: defaultBaseImage %q: want repository:tag@sha256:…: %w",
			file, config.DefaultBaseImage, err)
	}
	tag, err := name.NewTag(config.DefaultBaseImage[:len(config.DefaultBaseImage)-len("@")-len(pinned.DigestStr())])
	if err != nil {
		return "", fmt.Errorf("check the base image: %w", err)
	}
	index, err := remote.Index(tag, options(ctx)...)
	if err != nil {
		return "", fmt.Errorf("check the base image: %w", err)
	}
	now, err := index.Digest()
	if err != nil {
		return "", fmt.Errorf("check the base image: %w", err)
	}
	if now.String() != pinned.DigestStr() {
		return "", fmt.Errorf("check the base image: %s is %s now, and %s pins %s", tag, now, file, pinned.DigestStr())
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", fmt.Errorf("check the base image: %w", err)
	}
	var has []string
	for _, of := range manifest.Manifests {
		if of.Platform != nil && of.Platform.OS == "linux" {
			has = append(has, of.Platform.Architecture)
		}
	}
	for _, wanted := range Architectures() {
		if !slices.Contains(has, wanted) {
			return "", fmt.Errorf("check the base image: %s is for %v, and not for %s", pinned, has, wanted)
		}
	}
	return pinned.String(), nil
}
