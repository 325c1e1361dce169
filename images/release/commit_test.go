package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nstance/nstance/images/release"
)

// repository is a small one of git's, with a commit.
func repository(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	git(t, folder, "init", "-q")
	write(t, filepath.Join(folder, ".ko.yaml"), "defaultEnv: [GOENV=off]\n")
	git(t, folder, "add", ".")
	git(t, folder, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "x")
	return folder
}

func git(t *testing.T, folder string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", folder}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestVersion: what is built is named by its commit and by nothing else, and what no
// commit holds shows.
func TestVersion(t *testing.T) {
	folder := repository(t)
	version := func() string {
		t.Helper()
		v, err := release.Builder{Source: folder, Output: t.Output()}.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	commit := version()
	if !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(commit) {
		t.Errorf("a commit is %q", commit)
	}
	git(t, folder, "tag", "nightly")
	if got := version(); got != commit {
		t.Errorf("with a tag that is no release it is %q", got)
	}
	write(t, filepath.Join(folder, "new.go"), "package x\n")
	if got := version(); got != commit+"-dirty" {
		t.Errorf("with a file that git was not told of it is %q", got)
	}
	if err := os.Remove(filepath.Join(folder, "new.go")); err != nil {
		t.Fatal(err)
	}
	git(t, folder, "tag", "v1.2.3")
	if got := version(); got != "v1.2.3" {
		t.Errorf("a release is %q", got)
	}
}

// TestTag: what is released is what its tag says, or it is not released.
func TestTag(t *testing.T) {
	folder := repository(t)
	for _, tag := range []string{"v1.0.0-rc.1", "v1.0.0", "v1", "v1.0.0+x"} {
		git(t, folder, "tag", tag)
	}
	ask := func(tag, want string) {
		t.Helper()
		version, err := release.Builder{Source: folder, Tag: tag, Output: t.Output()}.Version(t.Context())
		switch {
		case want == "" && (err != nil || version != tag):
			t.Errorf("%s: %q, %v", tag, version, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %q, %v, want an error with %q", tag, version, err, want)
		}
	}
	ask("v1.0.0", "")
	ask("v1.0.0-rc.1", "")
	ask("v2.0.0", "not of the commit")
	ask("v1", "want v1.2.3")
	ask("v1.0.0+x", "want v1.2.3")
	write(t, filepath.Join(folder, ".ko.yaml"), "defaultEnv: [GOENV=off, X=1]\n")
	ask("v1.0.0", "not committed")
}

// TestSigners: exactly one signs, and none is trusted by mistake.
func TestSigners(t *testing.T) {
	for _, c := range []struct {
		signer release.Signer
		ok     bool
	}{
		{release.Signer{}, false}, {release.Signer{Key: "k"}, true}, {release.Signer{Keyless: true}, true},
		{release.Signer{Key: "k", Keyless: true}, false},
	} {
		if err := c.signer.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.signer, err)
		}
	}
	for _, c := range []struct {
		trust release.Trust
		ok    bool
	}{
		{release.Trust{}, false}, {release.Trust{Key: "k"}, true}, {release.Trust{Key: "k", Issuer: "i"}, true},
		{release.Trust{Identity: "x", Issuer: "i"}, true}, {release.Trust{Identity: "x"}, false},
		{release.Trust{Key: "k", Identity: "x", Issuer: "i"}, false},
	} {
		if err := c.trust.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.trust, err)
		}
	}
}
