package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestSourceHasEmbeddedFiles: the flake's source is all of the code, and files of some kinds. What
// a program embeds must be of one of them, or the program does not build there.
func TestSourceHasEmbeddedFiles(t *testing.T) {
	text, err := os.ReadFile("../packages.nix")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`\|\| builtins\.match (".*?[^\\]") path`).FindSubmatch(text)
	if found == nil {
		t.Fatal("packages.nix has no pattern of source files")
	}
	pattern, err := strconv.Unquote(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	taken := regexp.MustCompile("^(" + pattern + ")$")
	embed := regexp.MustCompile(`(?m)^//go:embed (.+)$`)
	seen := 0
	for _, folder := range []string{"../../cmd", "../../pkg"} {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			code, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, line := range embed.FindAllSubmatch(code, -1) {
				for _, name := range strings.Fields(string(line[1])) {
					files, err := filepath.Glob(filepath.Join(filepath.Dir(path), name))
					if err != nil || len(files) == 0 {
						t.Errorf("%s embeds %s: no such file (%v)", path, name, err)
					}
					for _, file := range files {
						seen++
						if !taken.MatchString(file) {
							t.Errorf("%s embeds %s, which packages.nix leaves out of the source: it takes %s", path, file, pattern)
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen == 0 {
		t.Error("no embedded file was found")
	}
}
