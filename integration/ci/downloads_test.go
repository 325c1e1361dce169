//go:build integration

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestDownloads: after make downloads, with an empty module cache before, all that the steps without
// a network compile can be compiled without one.
func TestDownloads(t *testing.T) {
	here := checkout{t, canSeclude(t.Context())}
	downloaded := filepath.Join(strings.TrimSpace(here.run(".", "go", "env", "GOMODCACHE")), "cache", "download")
	t.Setenv("GOPROXY", "file://"+filepath.ToSlash(downloaded))
	t.Setenv("GOSUMDB", "off") // go.sum has them all
	t.Setenv("GOFLAGS", "-trimpath -modcacherw")
	t.Setenv("GOMODCACHE", t.TempDir())
	here.run(".", "make", "--no-print-directory", "downloads")

	t.Setenv("GOPROXY", "off")
	for _, folder := range here.modules() {
		here.isolated(folder, "go", "list", "-deps", "-test", "-tags", "integration", "./...")
	}
	for _, tool := range here.tools() {
		here.isolated(".", "go", "list", "-deps", "-modfile="+filepath.Join(".ci", "tools", tool+".mod"), "tool")
	}
}
