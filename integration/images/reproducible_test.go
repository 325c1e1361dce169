//go:build integration

package images_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/nstance/nstance/images/release"
)

// address is the registry's address in every build: it is part of a base image's name, and so of a
// digest. It differs from that of `make images`, which may run at the same time.
const address = "127.0.0.1:5018"

// TestReproducible builds one commit twice, in different folders and in environments with nothing in
// common: with what Go has compiled before, and from nothing.
//
// The agent stands for all programs, which are built alike. PROGRAMS=… names others.
func TestReproducible(t *testing.T) {
	programs := os.Getenv("PROGRAMS")
	if programs == "" {
		programs = "nstance-agent"
	}
	// A setting as from go env -w.
	config := t.TempDir()
	if err := os.MkdirAll(filepath.Join(config, "go"), 0o755); err != nil {
		t.Fatal(err)
	}
	poison := "GOFLAGS=-tags=leaked\nGOEXPERIMENT=nodwarf5\nGOFIPS140=latest\nGOAMD64=v2\n"
	if err := os.WriteFile(filepath.Join(config, "go", "env"), []byte(poison), 0o600); err != nil {
		t.Fatal(err)
	}
	first := buildElsewhere(t, programs, "022", "", "GOFLAGS=", "TZ=UTC")
	second := buildElsewhere(t, programs, "077", t.TempDir(), "GOFLAGS=-race -tags=osusergo -ldflags=-w", "TZ=Pacific/Auckland",
		"SOURCE_DATE_EPOCH=1", "KO_DATA_DATE_EPOCH=2", "KO_DEFAULTLDFLAGS=-s", "VERSION=v99", "GOAMD64=v3", "GOARM64=v9.0", "GOOS=plan9",
		"CGO_ENABLED=1", "XDG_CONFIG_HOME="+config, "KOCACHE="+t.TempDir(), "LC_ALL=tr_TR.UTF-8")
	for i, image := range first.Images {
		if image.Reference != second.Images[i].Reference {
			t.Errorf("built twice: %s and %s", image.Reference, second.Images[i].Reference)
		}
		for j, platform := range image.Platforms {
			if again := second.Images[i].Platforms[j]; platform.Reference != again.Reference {
				t.Errorf("%s, %s: %s and %s", image.Name, platform.Architecture, platform.Reference, again.Reference)
			}
		}
	}
	if len(first.Images) != len(strings.Split(programs, ",")) {
		t.Fatalf("built %d images of %s", len(first.Images), programs)
	}
	if !bytes.Equal(first.sums, second.sums) {
		t.Errorf("archives made twice have the sums\n%sand\n%s", first.sums, second.sums)
	}
}

// elsewhere is the result of a build in a clone.
type elsewhere struct {
	release.Release
	sums []byte // of an archive
}

// buildElsewhere builds images of HEAD in a clone, with a build cache or with Go's own, and inspects
// them.
func buildElsewhere(t *testing.T, programs, umask, cache string, environment ...string) elsewhere {
	t.Helper()
	folder := t.TempDir()
	clone, work := filepath.Join(folder, "clone-"+umask), filepath.Join(folder, "work")
	run := func(dir string, env []string, script string, args ...string) {
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", "umask " + umask + "; " + script, "sh"}, args...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v", script, err)
		}
	}
	run(".", nil, `git clone -q "$(git rev-parse --show-toplevel)" "$1"`, clone)
	// Compiled with a normal environment, since the hostile one is for the build that it starts.
	command := filepath.Join(folder, "images")
	run(clone, nil, `GOTOOLCHAIN=$(sed -n 's/.*GOTOOLCHAIN=//p' .ko.yaml) go build -o "$1" ./images`, command)
	run(clone, environment, `exec "$@"`, command, "build", "--work="+work, "--address="+address,
		"--programs="+programs, "--cache="+cache)
	built, err := release.Load(work)
	if err != nil {
		t.Fatal(err)
	}
	agents := inspect(t, work, built)
	run(clone, nil, `GOTOOLCHAIN=$(sed -n 's/.*GOTOOLCHAIN=//p' .ko.yaml) make --silent nstance-agent`)
	by, err := os.ReadFile(filepath.Join(clone, "bin", "nstance-agent"))
	if err != nil || !bytes.Equal(by, agents["nstance-agent for "+runtime.GOARCH]) {
		t.Errorf("the agent of `make nstance-agent` is not the one in the image (%v)", err)
	}
	agent := agents["nstance-agent for amd64"]
	folder = filepath.Join(folder, "dist")
	run(clone, environment, `exec "$@"`, command, "dist", "--work="+work, "--folder="+folder, "--programs=nstance-agent")
	return elsewhere{built, sums(t, folder, agent)}
}

// sums returns the checksums of a folder of archives. The agent in the archive for Linux has to be
// the one in the image.
func sums(t *testing.T, folder string, agent []byte) []byte {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join(folder, "*_linux_amd64.tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("found the archives %v (%v)", archives, err)
	}
	packed, err := os.Open(archives[0])
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	var inside []string
	for r := tar.NewReader(unpacked); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		inside = append(inside, name)
		if name == "bin/nstance-agent" && agent != nil && !bytes.Equal(body, agent) {
			t.Errorf("the agent in the archive is not the one in the image")
		}
	}
	if want := []string{"LICENSE", "bin/nstance-agent", "systemd/nstance-agent.service"}; !slices.Equal(inside, want) {
		t.Errorf("the archive holds %v, want %v", inside, want)
	}
	list, err := os.ReadFile(filepath.Join(folder, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// inspect checks a build against the promises of .ko.yaml, and returns the programs.
func inspect(t *testing.T, work string, built release.Release) map[string][]byte {
	t.Helper()
	programs := map[string][]byte{}
	defer serve(t, work)()
	for _, image := range built.Images {
		if len(image.Platforms) != len(release.Architectures()) {
			t.Errorf("%s: built for %v", image.Name, image.Platforms)
		}
		for _, platform := range image.Platforms {
			where := image.Name + " for " + platform.Architecture
			ref, err := name.ParseReference(platform.Reference)
			if err != nil {
				t.Fatal(err)
			}
			pulled, err := remote.Image(ref)
			if err != nil {
				t.Fatal(err)
			}
			inspectConfig(t, where, built.Version, pulled, platform.Architecture)
			programs[where] = binary(t, pulled, image.Name)
			inspectBinary(t, where, programs[where], platform.Architecture)
			if text, err := os.ReadFile(platform.SBOM); err != nil || !bytes.Contains(text, []byte("github.com/nstance/nstance")) {
				t.Errorf("%s: its SBOM does not name the module (%v)", where, err)
			}
		}
	}
	return programs
}

func inspectConfig(t *testing.T, where, version string, image v1.Image, architecture string) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != architecture || config.OS != "linux" || config.Config.User != "65532" {
		t.Errorf("%s: %s/%s, runs as %q", where, config.OS, config.Architecture, config.Config.User)
	}
	if got := config.Config.Labels["org.opencontainers.image.version"]; got != version || got == "v99" {
		t.Errorf("%s: its label says version %q, want %q", where, got, version)
	}
	if year := config.Created.UTC().Year(); year < 2026 {
		t.Errorf("%s: made in %d, not when the commit was", where, year)
	}
}

func inspectBinary(t *testing.T, where string, program []byte, architecture string) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if info.GoVersion != "go1.26.8" {
		t.Errorf("%s: built by %s", where, info.GoVersion)
	}
	want := map[string]string{
		"-trimpath": "true", "CGO_ENABLED": "0", "GOOS": "linux", "GOARCH": architecture, "-buildmode": "exe", "-compiler": "gc",
		map[string]string{"amd64": "GOAMD64", "arm64": "GOARM64"}[architecture]: map[string]string{"amd64": "v1", "arm64": "v8.0"}[architecture],
	}
	for _, setting := range info.Settings {
		expected, known := want[setting.Key]
		if !known || expected != setting.Value {
			t.Errorf("%s: built with %s=%s", where, setting.Key, setting.Value)
		}
		delete(want, setting.Key)
	}
	if len(want) > 0 {
		t.Errorf("%s: not built with %v", where, want)
	}
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			t.Errorf("%s: is not static: it has a segment %s", where, segment.Type)
		}
	}
}

// binary returns the program in an image.
func binary(t *testing.T, image v1.Image, program string) []byte {
	t.Helper()
	flat := mutate.Extract(image)
	defer flat.Close()
	for r := tar.NewReader(flat); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("the image has no %s", program)
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimPrefix(header.Name, "/") != "ko-app/"+program {
			continue
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
}
