package stack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// This file locates the programs of Kubernetes: they are built from the repository, or in a folder
// that was built elsewhere.

// plane returns the folder of the control plane's programs.
func (c Config) plane() string {
	if c.Plane != "" {
		return c.Plane
	}
	return filepath.Join(c.Bin, "plane")
}

// kubectl returns the kubectl for the API server; for a cluster other than the stack's own, the
// installed one.
func (c Config) kubectl() string {
	switch {
	case !c.ownCluster():
		return "kubectl"
	case c.Plane != "":
		return filepath.Join(c.Plane, "kubectl")
	default:
		return filepath.Join(c.Bin, "kubectl")
	}
}

// buildPlane builds the control plane's programs if they are missing, and links them beside the
// stack's binaries.
func (s *Stack) buildPlane(ctx context.Context) error {
	switch {
	case !s.cfg.ownCluster():
		return nil
	case s.cfg.Plane != "":
		return s.cfg.checkPlane()
	}
	folder, err := s.runTool(ctx, filepath.Join(s.cfg.Repository, ".ci", "plane"))
	if err != nil {
		return fmt.Errorf("build the control plane: %w", err)
	}
	if err := s.buildDevK8s(ctx); err != nil {
		return err
	}
	for name, to := range map[string]string{"plane": folder, "kubectl": filepath.Join(folder, "kubectl")} {
		link := filepath.Join(s.cfg.Bin, name)
		if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := os.Symlink(to, link); err != nil {
			return err
		}
	}
	return nil
}

// checkPlane returns an error if a prebuilt control plane is incomplete.
func (c Config) checkPlane() error {
	for _, path := range []string{
		filepath.Join(c.Bin, "dev-k8s"), filepath.Join(c.Plane, "kube-apiserver"), filepath.Join(c.Plane, "kube-controller-manager"),
		filepath.Join(c.Plane, "capi-core"), filepath.Join(c.Plane, "capi", "crds"), filepath.Join(c.Plane, "capi", "webhooks.yaml"),
	} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("--plane %s: %w: want a control plane there, and dev-k8s in --bin", c.Plane, err)
		}
	}
	return nil
}

func (s *Stack) buildDevK8s(ctx context.Context) error {
	if _, err := s.runTool(ctx, "make", "--no-print-directory", "-C", s.cfg.Repository, "dev-k8s"); err != nil {
		return fmt.Errorf("build dev-k8s: %w", err)
	}
	return nil
}

// runTool runs a program, shows its stderr, and returns its stdout.
func (s *Stack) runTool(ctx context.Context, name string, args ...string) (answer string, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.cfg.Repository
	said, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	last := s.copyLines(said)
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(name), err, last)
	}
	return strings.TrimSpace(out.String()), nil
}

// copyLines copies lines to the output, and returns the last one.
func (s *Stack) copyLines(from io.Reader) (last string) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		last = lines.Text()
		fmt.Fprintf(s.cfg.Out, "%-8s | %s\n", "build", last)
	}
	return last
}
