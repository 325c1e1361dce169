package stack

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// registerAdmin makes the identity that the admin CLI uses, once.
func (s *Stack) registerAdmin(ctx context.Context) error {
	dir := filepath.Join(s.cfg.Temp, "admin")
	if _, err := os.Stat(filepath.Join(dir, "identity.crt")); err == nil {
		return nil
	}
	_, err := s.admin(ctx, "cluster", "register-operator", "--output-dir", dir)
	return err
}

// admin runs the CLI the way a person would after `. temp/dev.env`.
func (s *Stack) admin(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.cfg.Bin, "nstance-admin"), args...)
	cmd.Env = append(os.Environ(), adminEnv(s.cfg)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("nstance-admin %s: %s", strings.Join(args, " "), strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
