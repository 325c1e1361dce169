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

// starts are what processes or containers are started with, by tests or what they test.
var starts = regexp.MustCompile(`"(os/exec|github.com/docker/docker/client|` + module + `(integration/containers|pkg/operator/planetest))"`)

// testMain is that function: one line, or those up to a brace at the begin of one.
var testMain = regexp.MustCompile(`(?ms)^func TestMain\((?-s:.*)\}$|^func TestMain\(.*?^\}`)

// checked is what looks at what they leave behind; SharedCore and Shared of planetest do.
var checked = regexp.MustCompile(`\b(leaktest\.Main\(|shared\.Main\(m\b)`)

// elsewhere is what has no such TestMain: modules of their own, whose tests make test has
// run by pkg/leaktest/leaks, the check itself, and what is built.
var elsewhere = []string{"../cmd/dev-k8s", "../integration/terraform", "../pkg/leaktest", "../bin", "../temp", "../.git"}

// TestLeaksAreFound: where tests start processes or containers, a check at their end finds
// those that they leave.
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
