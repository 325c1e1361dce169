//go:build integration

package chart_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	images "github.com/nstance/nstance/images/release"
)

const reference = "registry.example.com/team/nstance-operator@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TestPackage: a release's packages for Helm and for clusterctl install that release's operator, by
// its digest, and are reproducible.
func TestPackage(t *testing.T) {
	for _, tag := range []string{"v1.2.3", "v1.2.3-rc.1", ""} {
		builder := checkout(t, tag)
		built := operator(t, builder)
		paths, err := builder.Chart(t.Context(), built, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		version := strings.TrimPrefix(tag, "v")
		if tag == "" {
			version = "0.0.0-g" + built.Version
		}
		if got := filepath.Base(paths[0]); got != "nstance-operator-"+version+".tgz" {
			t.Errorf("%q: the chart is in %s", tag, got)
		}
		for _, module := range majors() {
			text, err := helm(t, module, "template", "x", paths[0], "--kube-version=1.36.0")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(text, `image: "`+reference+`"`) != 2 || !strings.Contains(text, "helm.sh/chart: nstance-operator-"+version) {
				t.Errorf("%s: %s does not install %s", module, paths[0], reference)
			}
		}
		if text := read(t, paths[1]); strings.Count(text, "image: "+reference+"\n") != 1 || strings.Contains(text, ":dev") {
			t.Errorf("%s does not install %s", paths[1], reference)
		}
		again, err := builder.Chart(t.Context(), built, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for i := range paths {
			if read(t, paths[i]) != read(t, again[i]) {
				t.Errorf("%s is another file when it is made again", filepath.Base(paths[i]))
			}
		}
	}
}

// TestPackageOfAnotherCommit: a chart and an operator of different commits are not packaged.
func TestPackageOfAnotherCommit(t *testing.T) {
	builder := checkout(t, "")
	built := operator(t, builder)
	for name, change := range map[string]func(*images.Release){
		"no operator":       func(r *images.Release) { r.Images = nil },
		"another commit":    func(r *images.Release) { r.Commit = strings.Repeat("0", 40) },
		"the tree, changed": func(r *images.Release) { r.Version += "-dirty" },
	} {
		other := built
		change(&other)
		if paths, err := builder.Chart(t.Context(), other, t.TempDir()); err == nil {
			t.Errorf("%s: packaged %v", name, paths)
		}
	}
}

// checkout returns a clone of the committed files, with a tag.
func checkout(t *testing.T, tag string) images.Builder {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "clone")
	git(t, ".", "clone", "-q", git(t, ".", "rev-parse", "--show-toplevel"), folder)
	if tag != "" {
		git(t, folder, "tag", tag)
	}
	return images.Builder{Source: folder, Work: t.TempDir(), Tag: tag, Output: t.Output()}
}

// operator returns a release as a builder writes it.
func operator(t *testing.T, builder images.Builder) images.Release {
	t.Helper()
	version, err := builder.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return images.Release{
		Version: version, Commit: git(t, builder.Source, "rev-parse", "HEAD"),
		Images: []images.Image{{Name: "nstance-operator", Reference: reference}},
	}
}

func git(t *testing.T, folder string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = folder
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, said.Bytes())
	}
	return strings.TrimSpace(string(out))
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
