//go:build integration

package operator

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClusterctlTakesTheProvider: clusterctl finds a release and its contract, and installs all of
// it, with the operator's permissions, into the requested namespace.
func TestClusterctlTakesTheProvider(t *testing.T) {
	folder := t.TempDir()
	release := filepath.Join(folder, "infrastructure-nstance", "v0.1.0")
	if err := os.CopyFS(release, os.DirFS(filepath.Join(root(t), "config", "clusterctl"))); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(folder, "clusterctl.yaml")
	url := filepath.Join(release, "infrastructure-components.yaml")
	text := "providers:\n- {name: nstance, type: InfrastructureProvider, url: " + url + "}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := clusterctl(t, filepath.Join(root(t), "bin"), "generate", "provider", "--infrastructure", "nstance:v0.1.0",
		"--target-namespace", "blue", "--config", config)
	// clusterctl counts the policy for pods and its binding among what is in a namespace; the API server ignores that.
	for what, times := range map[string]int{
		"\n  namespace: blue\n": 13, "\nkind: CustomResourceDefinition\n": 6, "\nkind: Deployment\n": 1, "namespace: nstance\n": 0,
		"name: nstance-operator-config": 1, "--namespace=$(NSTANCE_NAMESPACE)": 1,
	} {
		if have := strings.Count(out, what); have != times {
			t.Errorf("%q is there %d times, want %d", what, have, times)
		}
	}
}

// clusterctl runs the real one, without its check for a newer version, and returns its output.
func clusterctl(t *testing.T, bin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "clusterctl"), args...)
	cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "HOME="+home, "XDG_CONFIG_HOME="+home)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatal("bin/clusterctl is not built: make bin/clusterctl")
	}
	if err != nil {
		t.Fatalf("clusterctl %v: %v\n%s%s", args, err, out, said.String())
	}
	return string(out)
}
