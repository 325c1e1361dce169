//go:build integration

package terraform_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFormat: every file is formatted as both programs do.
func TestFormat(t *testing.T) {
	each(t, func(t *testing.T, p program) {
		if out, err := p.run(t, filepath.Join(here.repository, "terraform"), "fmt", "-check", "-diff", "-recursive"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// TestLint: nothing is unused, undescribed, or named in another style.
func TestLint(t *testing.T) {
	if here.tflint == "" {
		t.Skip("SKIPPED: no tflint")
	}
	config, err := filepath.Abs("tflint.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders(t) {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), here.tflint, "--no-color", "--config="+config, "--minimum-failure-severity=notice")
			cmd.Dir = filepath.Join(here.repository, "terraform", folder)
			cmd.Env = append(clean(), "TFLINT_DISABLE_VERSION_CHECK=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// folders returns the folders of modules and examples, below terraform/.
func folders(t *testing.T) []string {
	t.Helper()
	var out []string
	root := filepath.Join(here.repository, "terraform")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if found, _ := filepath.Glob(filepath.Join(path, "*.tf")); len(found) > 0 {
			name, err := filepath.Rel(root, path)
			out = append(out, name)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 6 {
		t.Fatalf("there are only %v", out)
	}
	return out
}

// TestValidate: every module and example is valid, and passes its own tests.
func TestValidate(t *testing.T) {
	each(t, func(t *testing.T, p program) {
		copied := here.copied(t)
		for _, folder := range folders(t) {
			t.Run(folder, func(t *testing.T) {
				if here.config != "" {
					t.Parallel() // not with a shared cache of plugins, which does not support concurrent writes
				}
				dir := filepath.Join(copied, folder)
				p.prepare(t, dir)
				p.must(t, dir, "validate", "-no-color")
				if tests, _ := filepath.Glob(filepath.Join(dir, "tests", "*.tftest.hcl")); len(tests) > 0 {
					if out := p.must(t, dir, "test", "-no-color"); !strings.Contains(out, " passed, 0 failed") {
						t.Errorf("no test has run:\n%s", out)
					}
				} else if strings.HasPrefix(folder, "aws/") && strings.Count(folder, "/") == 1 {
					t.Error("the module has no tests of its own")
				}
			})
		}
	})
}

// TestPinned: the configured version replaces the modules' constraint, so that no newer one is
// installed.
func TestPinned(t *testing.T) {
	text := []byte("aws = {\n  source = \"hashicorp/aws\"\n  " + taken + "\n}\n")
	const want = "aws = {\n  source = \"hashicorp/aws\"\n  version = \"6.40.0\"\n}\n"
	if got := string(world{provider: "6.40.0"}.pinned(text)); got != want {
		t.Errorf("pinned is\n%s, want\n%s", got, want)
	}
	if got := string(world{}.pinned(text)); got != string(text) {
		t.Errorf("without a version it is changed to\n%s", got)
	}
}

// TestSchema: the stub's types match the provider's. Without the real provider, it only checks that
// they can be compared.
func TestSchema(t *testing.T) {
	if here.provider != "" {
		t.Skip("SKIPPED: the stub is compared with the newest version of the provider, not with " + here.provider)
	}
	each(t, func(t *testing.T, p program) {
		dir := filepath.Join(here.copied(t), "aws", "shard")
		p.prepare(t, dir)
		cmd := exec.CommandContext(t.Context(), "go", "run", "./schema", "-")
		cmd.Stdin = strings.NewReader(p.must(t, dir, "providers", "schema", "-json"))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "types of the stub are as the provider has them") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// TestExamples: each example can be applied, has then no pending changes, and can be destroyed.
func TestExamples(t *testing.T) {
	offline(t)
	release := `{"url": "` + url + `", "sha256": "` + sha256 + `"}`
	inputs := map[string]string{
		"examples/single-shard": `{"release": ` + release + `}`,
		"examples/multi-az":     `{"releases": {"amd64": ` + release + `, "arm64": ` + release + `}}`,
	}
	each(t, func(t *testing.T, p program) {
		copied := here.copied(t)
		for _, folder := range folders(t) {
			if !strings.HasPrefix(folder, "examples/") {
				continue
			}
			t.Run(folder, func(t *testing.T) {
				t.Parallel()
				values, known := inputs[folder]
				if !known {
					t.Fatal("the test has no inputs for it")
				}
				dir := filepath.Join(copied, folder)
				if err := os.WriteFile(filepath.Join(dir, "terraform.tfvars.json"), []byte(values), 0o600); err != nil {
					t.Fatal(err)
				}
				p.must(t, dir, "get")
				p.must(t, dir, "apply", "-auto-approve", "-no-color")
				p.must(t, dir, "plan", "-detailed-exitcode", "-no-color") // 2 for pending changes
				if out, err := p.run(t, dir, "destroy", "-auto-approve", "-no-color"); err == nil {
					t.Errorf("a cluster that is protected is destroyed:\n%s", out)
				}
				for left := range strings.Lines(p.must(t, dir, "state", "list")) {
					if !strings.HasPrefix(left, "module.cluster.") && !strings.Contains(left, "data.") {
						t.Errorf("a destroy that fails at the cluster has left %s", left)
					}
				}
				unprotect(t, filepath.Join(dir, "main.tf"))
				p.must(t, dir, "apply", "-auto-approve", "-no-color")
				p.must(t, dir, "destroy", "-auto-approve", "-no-color")
			})
		}
	})
}

// unprotect changes an example as docs/aws.md describes for a destroy.
func unprotect(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const source = "source     = \"../../aws/cluster\"\n"
	if strings.Count(string(text), source) != 1 {
		t.Fatalf("%s: want once %s", name, source)
	}
	changed := strings.Replace(string(text), source, source+"  deletion_protection = false\n", 1)
	if err := os.WriteFile(name, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
}
