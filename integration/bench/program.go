package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// program returns the binary that plays a role: this one for the operator, and for all others one
// without Kubernetes (build tag roles), which is built when it is first needed. Code counts as
// memory of its process, and that of the Kubernetes clients would exceed a server's own.
func (b *bench) program(ctx context.Context, role string) (string, error) {
	if role == roleOperator {
		return b.self, nil
	}
	b.roles.Do(func() {
		path := filepath.Join(b.temp, "roles")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", "roles", "-o", path, "./integration/bench")
		if out, err := build.CombinedOutput(); err != nil {
			b.rolesErr = fmt.Errorf("build the binary that plays roles, in the repository's folder: %w\n%s", err, out)
			return
		}
		b.rolesPath = path
	})
	return b.rolesPath, b.rolesErr
}
