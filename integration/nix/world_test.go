//go:build integration

// Package nix_test has the stories of the flake, told with a real Nix against a small stub of
// nixpkgs: make nix-check.
package nix_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/leaktest"
)

// world is a Nix with a store of its own, and a stub of nixpkgs that it can reach.
type world struct {
	repository string
	nixpkgs    string // the stub
	env        []string
	system     string
	plane      bool // the stub has Kubernetes
}

// here is the world of all stories.
var here world

func TestMain(m *testing.M) { leaktest.Main(func() int { return tell(m) }) }

func tell(m *testing.M) int {
	if _, err := exec.LookPath("nix"); err != nil {
		fmt.Fprintln(os.Stderr, "SKIPPED: the stories of the flake: no nix in the path")
		return 0
	}
	folder, err := os.MkdirTemp("", "nstance-nix-")
	if err == nil {
		defer remove(folder)
		here, err = newWorld(context.Background(), folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// remove removes a store too, whose folders nobody may write to.
func remove(folder string) {
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = os.Chmod(path, 0o755) //nolint:gosec // it is removed next
		}
		return err
	})
	_ = os.RemoveAll(folder)
}

func newWorld(ctx context.Context, folder string) (world, error) {
	repository, err := filepath.Abs("../..")
	if err != nil {
		return world{}, err
	}
	w := world{repository: repository, nixpkgs: filepath.Join(folder, "nixpkgs"), system: system()}
	host, err := w.host(ctx)
	if err != nil {
		return world{}, err
	}
	if err := os.CopyFS(w.nixpkgs, os.DirFS("nixpkgs")); err != nil {
		return world{}, err
	}
	if err := os.WriteFile(filepath.Join(w.nixpkgs, "host.json"), host, 0o600); err != nil {
		return world{}, err
	}
	// The machine's own store, if there is one, is left alone.
	w.env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "NIX_") })
	for name, path := range map[string]string{
		"NIX_STORE_DIR": "store", "NIX_STATE_DIR": "state", "NIX_LOG_DIR": "log", "NIX_CONF_DIR": "conf", "XDG_CACHE_HOME": "cache",
	} {
		path = filepath.Join(folder, path)
		w.env = append(w.env, name+"="+path)
		if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // as Nix makes them
			return world{}, err
		}
	}
	return w, nil
}

// host is what the stub takes from this machine.
func (w *world) host(ctx context.Context) ([]byte, error) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		return nil, err
	}
	environment, err := exec.CommandContext(ctx, "go", "env", "-json", "GOPROXY", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOSUMDB",
		"GONOSUMDB", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		return nil, err
	}
	pin, err := goOfPin(w.repository)
	if err != nil {
		return nil, err
	}
	plane, err := exec.CommandContext(ctx, filepath.Join(w.repository, ".ci", "plane"), "-n").Output()
	w.plane = err == nil // otherwise it was not built
	return json.Marshal(map[string]any{
		"shell": shell, "path": os.Getenv("PATH"), "environment": json.RawMessage(environment),
		"goVersion": pin, "plane": strings.TrimSpace(string(plane)),
	})
}

// goOfPin is the Go that the pinned nixpkgs is said to have.
func goOfPin(repository string) (string, error) {
	text, err := os.ReadFile(filepath.Join(repository, "nix", "pin.json"))
	if err != nil {
		return "", err
	}
	var pin struct{ Go string }
	if err := json.Unmarshal(text, &pin); err != nil {
		return "", fmt.Errorf("nix/pin.json: %w", err)
	}
	return pin.Go, nil
}

// system is what Nix calls this kind of machine.
func system() string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return arch + "-" + runtime.GOOS
}

// command is a nix command about a flake, with the stub in the place of nixpkgs.
func (w world) command(t *testing.T, verb, flake string, args ...string) *exec.Cmd {
	t.Helper()
	all := []string{
		"--extra-experimental-features", "nix-command flakes", "--offline", "--option", "build-users-group", "",
		"--option", "sandbox", "false",
		"--option", "eval-cache", "false", // Nix 2.8 loses there what a text refers to
		verb, "--no-write-lock-file", "--override-input", "nixpkgs", "path:" + w.nixpkgs, flake,
	}
	// A stack that is interrupted by the end of its test is given the time to clean up.
	cmd := exec.CommandContext(t.Context(), "nix", append(all, args...)...)
	cmd.Env, cmd.WaitDelay = w.env, time.Minute
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}

// run runs a nix command and returns what it printed, and what it said besides.
func (w world) run(t *testing.T, verb, flake string, args ...string) (printed, said string, err error) {
	t.Helper()
	cmd := w.command(t, verb, flake, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// must is run for a command that has to succeed.
func (w world) must(t *testing.T, verb, flake string, args ...string) (printed string) {
	t.Helper()
	printed, said, err := w.run(t, verb, flake, args...)
	if err != nil {
		t.Fatalf("nix %s %s %s: %v\n%s", verb, flake, strings.Join(args, " "), err, said)
	}
	return printed
}

// of names an output of this repository's flake.
func (w world) of(output string) string { return w.flake() + "#" + output }

// flake is this repository as a flake, also where the clone is shallow.
func (w world) flake() string { return "git+file://" + w.repository + "?shallow=1" }

// build builds an output and returns where it is.
func (w world) build(t *testing.T, flake string) (path string) {
	t.Helper()
	link := filepath.Join(t.TempDir(), "result")
	w.must(t, "build", flake, "--out-link", link)
	path, err := os.Readlink(link)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// copied is a copy of what git has of this repository, in which something is changed.
func (w world) copied(t *testing.T, file, from, to string) (flake string) {
	t.Helper()
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `git ls-files -z | tar c --null -T - | tar x -C "$1"`, "sh", folder)
	cmd.Dir = w.repository
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copy the repository: %v: %s", err, out)
	}
	path := filepath.Join(folder, file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), from, to, 1)
	if changed == string(text) {
		t.Fatalf("%s has no %q", file, from)
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	return "path:" + folder
}

// configuration is a flake as a user has one: a machine with our modules, and one of its own.
func (w world) configuration(t *testing.T, module string) (flake string) {
	t.Helper()
	folder := t.TempDir()
	text := fmt.Sprintf(`{
  inputs.nstance.url = %q;
  inputs.nstance.inputs.nixpkgs.follows = "nixpkgs";
  outputs = { self, nixpkgs, nstance }: {
    nixosConfigurations.mine = nixpkgs.lib.nixosSystem {
      system = %q;
      modules = [ nstance.nixosModules.default %s ];
    };
    cases = import "${nstance}/nix/tests/options.nix";
    inherit (nstance) packages;
  };
}
`, w.flake(), w.system, module)
	if err := os.WriteFile(filepath.Join(folder, "flake.nix"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "path:" + folder
}
