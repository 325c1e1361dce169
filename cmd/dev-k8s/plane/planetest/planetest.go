// Package planetest finds the control plane's programs for tests, as the package of
// that name in pkg/operator does.
package planetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Want is the environment variable that, set to 0, leaves out tests that need a
// control plane, and, set to 1, lets them fail where they would be skipped.
const Want = "PLANE"

// Folder returns where the programs are. It skips the test, and says why, when they
// were not built or are not wanted.
func Folder(tb testing.TB) string {
	tb.Helper()
	if os.Getenv(Want) == "0" {
		tb.Skip("SKIPPED: " + Want + "=0: no test runs on a control plane")
	}
	mod, err := exec.CommandContext(context.Background(), "go", "env", "GOMOD").Output()
	if err != nil {
		tb.Fatal(err)
	}
	root := filepath.Join(filepath.Dir(strings.TrimSpace(string(mod))), "..", "..")
	find := exec.CommandContext(tb.Context(), filepath.Join(root, ".ci", "plane"), "-n")
	find.Dir = root
	out, err := find.Output()
	switch {
	case err == nil:
		return strings.TrimSpace(string(out))
	case os.Getenv(Want) == "1":
		tb.Fatal("the control plane is not built, and " + Want + "=1 wants it: make testplane builds it")
	default:
		tb.Skip("SKIPPED: the control plane is not built: make testplane builds it")
	}
	return ""
}
