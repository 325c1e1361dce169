//go:build integration

// Package terraform_test checks the modules in terraform/ with Terraform and OpenTofu, against
// a stub of the provider: make terraform-check.
package terraform_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// world is shared by all tests.
type world struct {
	repository string
	config     string    // of the programs: the stub's folder; empty with the real provider
	programs   []program // Terraform, OpenTofu, or both
	provider   string    // the only version of the real provider to use; empty: the newest
	tflint     string    // empty: none
}

// program is Terraform or OpenTofu.
type program struct {
	name, path string
}

// here is the shared world.
var here world

func TestMain(m *testing.M) { os.Exit(check(m)) }

func check(m *testing.M) int {
	folder, err := os.MkdirTemp("", "nstance-terraform-")
	if err == nil {
		defer os.RemoveAll(folder)
		here, err = newWorld(context.Background(), folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if len(here.programs) == 0 {
		fmt.Fprintln(os.Stderr, "SKIPPED: the checks of the Terraform modules: there is neither Terraform nor OpenTofu")
		return 0
	}
	return m.Run()
}

func newWorld(ctx context.Context, folder string) (world, error) {
	repository, err := filepath.Abs("../..")
	if err != nil {
		return world{}, err
	}
	w := world{repository: repository}
	if w.tflint, err = found("TFLINT", "tflint"); err != nil {
		return w, err
	}
	for _, one := range [][2]string{{"TERRAFORM", "terraform"}, {"TOFU", "tofu"}} {
		path, err := found(one[0], one[1])
		if err != nil {
			return w, err
		}
		if path == "" {
			fmt.Fprintf(os.Stderr, "SKIPPED: the checks with %s: there is none\n", one[1])
			continue
		}
		w.programs = append(w.programs, program{name: one[1], path: path})
	}
	if os.Getenv("REAL_PROVIDER") == "1" {
		fmt.Fprintln(os.Stderr, "SKIPPED: what plans and applies: the real provider would want an account")
		w.provider = os.Getenv("PROVIDER")
		return w, nil
	}
	w.config = filepath.Join(folder, "stub.tfrc")
	text := fmt.Sprintf("provider_installation {\n  dev_overrides {\n    \"hashicorp/aws\" = %q\n  }\n  direct {}\n}\n", folder)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(folder, "terraform-provider-aws"), "./stub")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	return w, errors.Join(os.WriteFile(w.config, []byte(text), 0o600), build.Run())
}

// found returns the path of a program, which a variable may set, or disable with 0. A path that is
// set must exist.
func found(variable, name string) (string, error) {
	switch named := os.Getenv(variable); named {
	case "0":
		return "", nil
	case "":
		path, err := exec.LookPath(name)
		if err != nil {
			return "", nil //nolint:nilerr // it is said what is skipped for that
		}
		return path, nil
	default:
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("%s: want the path of %s, or 0 to do without: %w", variable, name, err)
		}
		return path, nil
	}
}

// run runs a program in a folder and returns its output.
func (p program) run(t *testing.T, folder string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.path, args...)
	cmd.Dir = folder
	cmd.Env = os.Environ() // the real provider may be in a mirror, or in a cache
	if here.config != "" {
		cmd.Env = append(clean(), "TF_CLI_CONFIG_FILE="+here.config)
	}
	cmd.Env = append(cmd.Env, "TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", p.name, strings.Join(args, " "), err, end(string(out)), said.Bytes())
	}
	return string(out), err
}

// end returns the last lines of a program's output, where the reason is.
func end(out string) string {
	lines := strings.SplitAfter(out, "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "")
}

// must is run where an error ends the test.
func (p program) must(t *testing.T, folder string, args ...string) string {
	t.Helper()
	out, err := p.run(t, folder, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// clean is the environment without variables that change the programs' behaviour.
func clean() []string {
	return slices.DeleteFunc(os.Environ(), func(one string) bool {
		return strings.HasPrefix(one, "TF_") || strings.HasPrefix(one, "AWS_")
	})
}

// prepare installs a folder's providers and modules. With the stub there is nothing to install.
func (p program) prepare(t *testing.T, folder string) {
	t.Helper()
	if here.config != "" {
		p.must(t, folder, "get")
		return
	}
	p.must(t, folder, "init", "-backend=false", "-no-color")
}

// offline skips a test that can't run with the real provider.
func offline(t *testing.T) {
	t.Helper()
	if here.config == "" {
		t.Skip("SKIPPED: the real provider would want an account")
	}
}

// copied returns a working copy of the modules in the tree.
func (w world) copied(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "terraform")
	root := filepath.Join(w.repository, "terraform")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".terraform":
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(folder, name), 0o755)
		case strings.Contains(entry.Name(), ".tfstate"), strings.HasPrefix(entry.Name(), ".terraform"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(folder, name), w.pinned(text), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// pinned returns a file that replaces the modules' version constraint of the provider.
func (w world) pinned(text []byte) []byte {
	if w.provider == "" {
		return text
	}
	return bytes.ReplaceAll(text, []byte(taken), fmt.Appendf(nil, "version = %q", w.provider))
}

// each runs a story with each program.
func each(t *testing.T, story func(*testing.T, program)) {
	t.Helper()
	for _, p := range here.programs {
		t.Run(p.name, func(t *testing.T) { story(t, p) })
	}
}
