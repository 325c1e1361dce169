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

// This file is where the programs of Kubernetes are: built from the repository, or in a
// folder that somebody else made.

// plane is the folder of the control plane's programs.
func (c Config) plane() string {
	if c.Plane != "" {
		return c.Plane
	}
	return filepath.Join(c.Bin, "plane")
}

// kubectl is what a person asks the API server with: of any cluster that is not the
// stack's own there is one already.
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

// buildPlane has the programs of the control plane built, if they are not yet, and puts
// links to them beside our own.
func (s *Stack) buildPlane(ctx context.Context) error {
	switch {
	case !s.cfg.ownCluster():
		return nil
	case s.cfg.Plane != "":
		return s.cfg.checkPlane()
	}
	folder, err := s.tool(ctx, filepath.Join(s.cfg.Repository, ".ci", "plane"))
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

// checkPlane says what is not there of a control plane that somebody else built.
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
	if _, err := s.tool(ctx, "make", "--no-print-directory", "-C", s.cfg.Repository, "dev-k8s"); err != nil {
		return fmt.Errorf("build dev-k8s: %w", err)
	}
	return nil
}

// tool runs a program to its end, shows what it says of its work, and returns what it
// answers.
func (s *Stack) tool(ctx context.Context, name string, args ...string) (answer string, err error) {
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
	last := s.repeat(said)
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(name), err, last)
	}
	return strings.TrimSpace(out.String()), nil
}

// repeat shows lines, and returns the last of them.
func (s *Stack) repeat(from io.Reader) (last string) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		last = lines.Text()
		fmt.Fprintf(s.cfg.Out, "%-8s | %s\n", "build", last)
	}
	return last
}
