//go:build integration

// Package chart_test renders the operator's chart with both majors of Helm, and installs,
// upgrades and removes it on a real API server.
package chart_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// chart is the chart in this repository.
const chart = "../../charts/nstance-operator"

// majors are the tool modules of Helm's majors in use.
func majors() []string { return []string{"helm", "helm3"} }

// paths are the paths of the programs built from tool modules.
var paths sync.Map

// path returns the path of a tool module's Helm, which the first call builds.
func path(t *testing.T, module string) string {
	t.Helper()
	build := sync.OnceValues(func() (string, error) {
		cmd := exec.Command("go", "tool", "-n", "-modfile="+filepath.Join(".ci", "tools", module+".mod"), "helm")
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("build %s: %w: %s", module, err, said.Bytes())
		}
		return strings.TrimSpace(string(out)), nil
	})
	once, _ := paths.LoadOrStore(module, build)
	found, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// helm runs Helm without the user's settings, and returns its output.
func helm(t *testing.T, module string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path(t, module), args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"KUBECACHEDIR="+home)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("helm %s: %w: %s", args[0], err, said.Bytes())
	}
	return string(out), nil
}

// render returns what a release named nstance-operator in the namespace nstance would apply to a
// recent Kubernetes.
func render(t *testing.T, module string, args ...string) (string, error) {
	t.Helper()
	return helm(t, module, append([]string{"template", "nstance-operator", chart, "--namespace=nstance", "--kube-version=1.36.0"}, args...)...)
}
