//go:build integration

// Package nix_test runs the stories of the flake, with a real Nix on a small stub of nixpkgs: make
// nix-check.
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

// fixture is a Nix with a store of its own, and a local stub of nixpkgs.
type fixture struct {
	repository string
	nixpkgs    string // the stub
	env        []string
	system     string
	plane      bool // the stub has Kubernetes
}

// here is the fixture of all stories.
var here fixture

func TestMain(m *testing.M) { leaktest.Main(func() int { return tell(m) }) }

func tell(m *testing.M) int {
	if _, err := exec.LookPath("nix"); err != nil {
		fmt.Fprintln(os.Stderr, "SKIPPED: the stories of the flake: no nix in the path")
		return 0
	}
	folder, err := os.MkdirTemp("", "nstance-nix-")
	if err == nil {
		defer remove(folder)
		here, err = newFixture(context.Background(), folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// remove deletes a folder, including a store's read-only ones.
func remove(folder string) {
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = os.Chmod(path, 0o755) //nolint:gosec // it is removed next
		}
		return err
	})
	_ = os.RemoveAll(folder)
}

func newFixture(ctx context.Context, folder string) (fixture, error) {
	repository, err := filepath.Abs("../..")
	if err != nil {
		return fixture{}, err
	}
	f := fixture{repository: repository, nixpkgs: filepath.Join(folder, "nixpkgs"), system: system()}
	host, err := f.host(ctx)
	if err != nil {
		return fixture{}, err
	}
	if err := os.CopyFS(f.nixpkgs, os.DirFS("nixpkgs")); err != nil {
		return fixture{}, err
	}
	if err := os.WriteFile(filepath.Join(f.nixpkgs, "host.json"), host, 0o600); err != nil {
		return fixture{}, err
	}
	// The machine's own store, if there is one, is not touched.
	f.env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "NIX_") })
	for name, path := range map[string]string{
		"NIX_STORE_DIR": "store", "NIX_STATE_DIR": "state", "NIX_LOG_DIR": "log", "NIX_CONF_DIR": "conf", "XDG_CACHE_HOME": "cache",
	} {
		path = filepath.Join(folder, path)
		f.env = append(f.env, name+"="+path)
		if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // as Nix makes them
			return fixture{}, err
		}
	}
	return f, nil
}

// host has what the stub uses from this machine.
func (f *fixture) host(ctx context.Context) ([]byte, error) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		return nil, err
	}
	environment, err := exec.CommandContext(ctx, "go", "env", "-json", "GOPROXY", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOSUMDB",
		"GONOSUMDB", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		return nil, err
	}
	pin, err := goOfPin(f.repository)
	if err != nil {
		return nil, err
	}
	plane, err := exec.CommandContext(ctx, filepath.Join(f.repository, ".ci", "plane"), "-n").Output()
	f.plane = err == nil // otherwise it was not built
	return json.Marshal(map[string]any{
		"shell": shell, "path": os.Getenv("PATH"), "environment": json.RawMessage(environment),
		"goVersion": pin, "plane": strings.TrimSpace(string(plane)),
	})
}

// goOfPin is the version of Go in the pinned nixpkgs.
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

// system is Nix's name for this kind of machine.
func system() string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return arch + "-" + runtime.GOOS
}

// command returns a nix command for a flake, with the stub instead of nixpkgs.
func (f fixture) command(t *testing.T, verb, flake string, args ...string) *exec.Cmd {
	t.Helper()
	all := []string{
		"--extra-experimental-features", "nix-command flakes", "--offline", "--option", "build-users-group", "",
		"--option", "sandbox", "false",
		"--option", "eval-cache", "false", // Nix 2.8 loses a text's references there
		verb, "--no-write-lock-file", "--override-input", "nixpkgs", "path:" + f.nixpkgs, flake,
	}
	// A stack that is interrupted at the end of its test gets time to clean up.
	cmd := exec.CommandContext(t.Context(), "nix", append(all, args...)...)
	cmd.Env, cmd.WaitDelay = f.env, time.Minute
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}

// run runs a nix command and returns its output and its error output.
func (f fixture) run(t *testing.T, verb, flake string, args ...string) (printed, said string, err error) {
	t.Helper()
	cmd := f.command(t, verb, flake, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// must is run for a command that has to succeed.
func (f fixture) must(t *testing.T, verb, flake string, args ...string) (printed string) {
	t.Helper()
	printed, said, err := f.run(t, verb, flake, args...)
	if err != nil {
		t.Fatalf("nix %s %s %s: %v\n%s", verb, flake, strings.Join(args, " "), err, said)
	}
	return printed
}

// of returns the name of an output of this repository's flake.
func (f fixture) of(output string) string { return f.flake() + "#" + output }

// flake is this repository as a flake, also in a shallow clone.
func (f fixture) flake() string { return "git+file://" + f.repository + "?shallow=1" }

// build builds an output and returns its path.
func (f fixture) build(t *testing.T, flake string) (path string) {
	t.Helper()
	link := filepath.Join(t.TempDir(), "result")
	f.must(t, "build", flake, "--out-link", link)
	path, err := os.Readlink(link)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// copied returns a modified copy of the repository's committed files.
func (f fixture) copied(t *testing.T, file, from, to string) (flake string) {
	t.Helper()
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `git ls-files -z | tar c --null -T - | tar x -C "$1"`, "sh", folder)
	cmd.Dir = f.repository
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

// configuration returns a flake as users write it: a machine with our modules, and one of its own.
func (f fixture) configuration(t *testing.T, module string) (flake string) {
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
`, f.flake(), f.system, module)
	if err := os.WriteFile(filepath.Join(folder, "flake.nix"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "path:" + folder
}
