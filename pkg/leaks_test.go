package pkg_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// starts are the calls that start processes or containers, in tests or in the tested code.
var starts = regexp.MustCompile(`"(os/exec|github.com/docker/docker/client|` + module + `(integration/containers|pkg/operator/planetest))"`)

// testMain matches that function: one line, or all lines up to a brace at the start of one.
var testMain = regexp.MustCompile(`(?ms)^func TestMain\((?-s:.*)\}$|^func TestMain\(.*?^\}`)

// checked are the calls that check what is left behind; SharedCore and Shared of planetest include
// one.
var checked = regexp.MustCompile(`\b(leaktest\.Main\(|shared\.Main\(m\b)`)

// elsewhere are folders without such a TestMain: separate modules, whose tests make test runs by
// pkg/leaktest/leaks, the check itself, and build results.
var elsewhere = []string{
	"../cmd/dev-k8s", "../integration/terraform", "../integration/monitoring", "../integration/dashboard",
	"../pkg/leaktest", "../bin", "../temp", "../.git",
}

// TestLeaksAreFound: tests that start processes or containers have a check at their end for those
// that are left.
func TestLeaksAreFound(t *testing.T) {
	found, tested := map[string]bool{}, map[string]bool{} // folder: there is a check; there are tests
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(elsewhere, filepath.ToSlash(path)):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		folder := filepath.Dir(path)
		tested[folder] = tested[folder] || strings.HasSuffix(path, "_test.go")
		if _, known := found[folder]; starts.Match(text) && !known {
			found[folder] = false
		}
		if checked.Match(testMain.Find(text)) {
			found[folder] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 30 {
		t.Fatalf("tests of only %d folders start something: the search misses some", len(found))
	}
	for folder, ok := range found {
		if !ok && tested[folder] {
			t.Errorf("tests of %s start processes or containers, and no TestMain has leaktest.Main look for what they leave", folder)
		}
	}
}
