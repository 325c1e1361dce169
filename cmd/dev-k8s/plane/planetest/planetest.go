// Package planetest finds the control plane's programs and free addresses for tests, like the
// package of that name in pkg/operator.
package planetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Want is an environment variable: 0 skips tests that need a control plane, 1 fails them where
// they would be skipped.
const Want = "PLANE"

// Folder returns the folder of the programs. It skips the test, with a reason, if they are not
// built or not wanted.
func Folder(tb testing.TB) string {
	tb.Helper()
	if os.Getenv(Want) == "0" {
		tb.Skip("SKIPPED: " + Want + "=0: tests on a control plane are off")
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
		tb.Fatal("the control plane is not built, and " + Want + "=1 requires it: run make testplane")
	default:
		tb.Skip("SKIPPED: the control plane is not built: run make testplane")
	}
	return ""
}

// Addresses returns free loopback addresses. Their ports are below the kernel's ephemeral
// range, so that no connection takes one before the program does.
func Addresses(n int) (all []string, err error) {
	for range n * 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12000)))
		l, listenErr := net.Listen("tcp", addr) //nolint:noctx // at once
		if listenErr != nil {
			err = listenErr
			continue
		}
		defer l.Close() // so that none is returned twice
		if all = append(all, addr); len(all) == n {
			return all, nil
		}
	}
	return nil, fmt.Errorf("no free port: %w", err)
}
