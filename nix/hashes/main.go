// Command hashes writes nix/hashes.json: the hashes by which the flake knows what it
// downloads. Nix itself is not needed for that, nor one of its caches.
//
//	go run ./nix/hashes
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/nstance/nstance/nix/hashes/nar"
)

// clusterAPI is the module whose core runs beside dev-k8s. It is pinned twice: for the
// flake, which builds nothing else of it, and for tests.
const (
	clusterAPI = "sigs.k8s.io/cluster-api"
	capiCore   = ".ci/tools/capi-core.mod"
	testPlane  = ".ci/tools/plane.mod"
)

// hashes is the file, each hash in the form of a vendorHash.
type hashes struct {
	Vendor map[string]string `json:"vendor"` // of what `go mod vendor` writes, by package
	CAPI   string            `json:"capi"`   // of Cluster API's kinds and webhooks
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, filepath.Join("nix", "hashes.json")); err != nil {
		fmt.Fprintln(os.Stderr, "hashes:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, path string) error {
	work, err := os.MkdirTemp("", "nstance-hashes-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	core := filepath.Join(work, "core")
	if err := errors.Join(moveIn(capiCore, core), samePin(ctx)); err != nil {
		return err
	}
	all := hashes{Vendor: map[string]string{}}
	for name, module := range map[string]string{"nstance": ".", "dev-k8s": filepath.Join("cmd", "dev-k8s"), "capi-core": core} {
		to := filepath.Join(work, "vendor", name)
		if _, err := command(ctx, module, "mod", "vendor", "-o", to); err != nil {
			return err
		}
		if all.Vendor[name], err = nar.Hash(to); err != nil {
			return err
		}
	}
	if all.CAPI, err = kinds(ctx, core, filepath.Join(work, "capi")); err != nil {
		return err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// moveIn makes a folder of a tool's module, as the flake does.
func moveIn(mod, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for from, to := range map[string]string{mod: "go.mod", strings.TrimSuffix(mod, ".mod") + ".sum": "go.sum"} {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, to), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// samePin fails when the two pins of Cluster API differ.
func samePin(ctx context.Context) error {
	var pins [2]string
	for i, mod := range []string{capiCore, testPlane} {
		version, err := command(ctx, ".", "list", "-modfile="+mod, "-m", "-f", "{{.Version}}", clusterAPI)
		if err != nil {
			return err
		}
		pins[i] = version
	}
	if pins[0] != pins[1] {
		return fmt.Errorf("%s pins %s %s, and %s pins %s: want the same", capiCore, clusterAPI, pins[0], testPlane, pins[1])
	}
	return nil
}

// kinds is the hash of the folder that a stack finds Cluster API's kinds in.
func kinds(ctx context.Context, core, folder string) (string, error) {
	if _, err := command(ctx, core, "mod", "download", clusterAPI); err != nil {
		return "", err
	}
	source, err := command(ctx, core, "list", "-m", "-f", "{{.Dir}}", clusterAPI)
	if err != nil {
		return "", err
	}
	config := filepath.Join(source, "core", "config")
	if err := copyFiles(filepath.Join(config, "crd", "bases"), filepath.Join(folder, "crds")); err != nil {
		return "", err
	}
	hooks, err := os.ReadFile(filepath.Join(config, "webhook", "manifests.yaml"))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "webhooks.yaml"), hooks, 0o644); err != nil {
		return "", err
	}
	return nar.Hash(folder)
}

func copyFiles(from, to string) error {
	files := os.DirFS(from)
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s has no YAML", from)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// command runs go in a folder and returns what it answers.
func command(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
