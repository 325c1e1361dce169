// Package release makes the container images: ko builds them, this package pushes
// them, cosign signs them, and what was signed is verified as a user would.
//
// The same commit gives the same digests, wherever it is built. So nothing but the commit
// may come into an image: ko and Go are pinned, their environment is made here instead of
// inherited, and times are the commit's.
//
// Each step is a program that is started; nothing here is safe for concurrent use.
package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Programs have images of their own, named as they are.
func Programs() []string {
	return []string{"nstance-server", "nstance-agent", "nstance-operator", "nstance-admin", "nstance-asg"}
}

// Architectures are those of linux that an image has.
func Architectures() []string { return []string{"amd64", "arm64"} }

// Builder says what is released from where.
type Builder struct {
	Source string    // the checkout
	Work   string    // a folder for what is kept between building, signing and verifying
	Tag    string    // the release that this is to be; empty: none, and then git says what it is
	Output io.Writer // what the tools say
}

// Release is what one build pushed.
type Release struct {
	Version string  `json:"version"`
	Commit  string  `json:"commit"`
	Images  []Image `json:"images"`
}

// Image is an index of one image for each architecture.
type Image struct {
	Name      string     `json:"name"`
	Reference string     `json:"reference"` // repository@digest of the index
	Platforms []Platform `json:"platforms"`
}

// Platform is the image of one architecture.
type Platform struct {
	Architecture string `json:"architecture"`
	Reference    string `json:"reference"` // repository@digest
	SBOM         string `json:"sbom"`      // a file, SPDX as JSON
	Size         int64  `json:"size"`      // in bytes: manifest, config and compressed layers
}

// Local reports whether all of a release is on this machine only.
func (r Release) Local() bool {
	return !slices.ContainsFunc(r.Images, func(i Image) bool { return !local(i.Reference) })
}

// References are those of the index and of each architecture's image: a machine may
// have pulled either, so each is signed.
func (i Image) References() []string {
	all := []string{i.Reference}
	for _, platform := range i.Platforms {
		all = append(all, platform.Reference)
	}
	return all
}

// Load reads what the last build in the folder work pushed.
func Load(work string) (Release, error) {
	text, err := os.ReadFile(record(work))
	if errors.Is(err, os.ErrNotExist) {
		return Release{}, errors.New("no images have been built here: run `make images` first")
	}
	if err != nil {
		return Release{}, fmt.Errorf("read what was built: %w", err)
	}
	var r Release
	if err := json.Unmarshal(text, &r); err != nil {
		return Release{}, fmt.Errorf("read what was built: %s: %w", record(work), err)
	}
	return r, nil
}

// save keeps a release for the steps that follow.
func save(work string, r Release) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("keep what was built: %w", err)
	}
	if err := os.WriteFile(record(work), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("keep what was built: %w", err)
	}
	return nil
}

func record(work string) string { return filepath.Join(work, "release.json") }
