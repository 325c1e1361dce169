package registry_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/docker/registry"
)

// TestHelperThatHangs: a credential helper is not waited for longer than the question.
func TestHelperThatHangs(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// It goes with its folder, when the test is over, and after two minutes at the latest.
	write("docker-credential-hang", "#!/bin/sh\nn=0\nwhile [ -e \"$0\" ] && [ $n -lt 1200 ]; do sleep 0.1; n=$((n+1)); done\n", 0o755)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	config := write("config.json", `{"credHelpers":{"127.0.0.2:1":"hang"}}`, 0o600)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := registry.New(config).Resolve(ctx, "127.0.0.2:1/agent:v1")
	took := time.Since(began)
	if took > time.Minute || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "password") {
		t.Errorf("after %s: %v", took, err)
	}
}
