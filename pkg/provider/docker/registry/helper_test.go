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

// TestHangingCredentialHelper: the context's deadline also ends the wait for a credential
// helper.
func TestHangingCredentialHelper(t *testing.T) {
	dir := t.TempDir()
	// The helper exits when its folder is removed at the end of the test, and after two minutes at
	// the latest.
	write(t, filepath.Join(dir, "docker-credential-hang"),
		"#!/bin/sh\nn=0\nwhile [ -e \"$0\" ] && [ $n -lt 1200 ]; do sleep 0.1; n=$((n+1)); done\n", 0o755)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	config := write(t, filepath.Join(dir, "config.json"), `{"credHelpers":{"127.0.0.2:1":"hang"}}`, 0o600)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := registry.New(config).Resolve(ctx, "127.0.0.2:1/agent:v1")
	took := time.Since(began)
	if took > time.Minute || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "password") {
		t.Errorf("after %s: %v", took, err)
	}
}
