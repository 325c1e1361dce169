package stack

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// registerAdmin creates the identity of the admin CLI, unless there is one of this cluster: a bucket
// that was emptied has become another cluster, with another CA.
func (s *Stack) registerAdmin(ctx context.Context) error {
	dir := filepath.Join(s.cfg.Temp, "admin")
	current, err := os.ReadFile(s.cfg.caFile())
	if err != nil {
		return fmt.Errorf("read the cluster's CA: %w", err)
	}
	_, err = os.Stat(filepath.Join(dir, "identity.crt"))
	known, caErr := os.ReadFile(filepath.Join(dir, "ca.crt"))
	switch {
	case err == nil && caErr == nil && bytes.Equal(known, current):
		return nil
	case err == nil:
		s.cfg.Logger.WarnContext(ctx, "the bucket belongs to another cluster than the admin's identity: making another identity",
			slog.String("folder", dir))
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove the admin's identity: %w", err)
		}
	}
	_, err = s.admin(ctx, "cluster", "register-operator", "--output-dir", dir)
	return err
}

// caFile is the cluster's CA in the bucket.
func (c Config) caFile() string { return filepath.Join(c.Temp, "dev-s3", "cluster", "ca.crt") }

// admin runs the CLI with the environment of dev.env.
func (s *Stack) admin(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.cfg.Bin, "nstance-admin"), args...)
	cmd.Env = append(append(os.Environ(), adminEnv(s.cfg)...), "NSTANCE_ADMIN_TIMEOUT=2m")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("nstance-admin %s: %s", strings.Join(args, " "), strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
