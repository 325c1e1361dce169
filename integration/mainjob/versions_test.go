//go:build integration

package mainjob

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// previousFile names the commit whose binaries run beside the present ones.
const previousFile = "integration/mainjob/previous.txt"

// The versions that run beside each other.
const (
	previous = "previous"
	present  = "present"
)

// product lists the programs that users install, and may upgrade one by one.
var product = []string{"nstance-server", "nstance-agent", "nstance-admin"}

// versions is a stack whose binaries can be replaced while it runs, as a package manager does:
// running processes continue, and new ones are of the new version.
type versions struct {
	*stack
	folders map[string]string // folders of the binaries of each version
}

// upOf starts a stack with a standby, of one version.
func upOf(t *testing.T, version string) *versions {
	t.Helper()
	now := filepath.Join(root(t), "bin")
	v := &versions{stack: newStack(t, "process")}
	end := v.waits.For("the build of the previous version")
	v.folders = map[string]string{previous: buildPrevious(t), present: now}
	end()
	v.bin = filepath.Join(v.temp, "installed")
	if err := os.Mkdir(v.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	v.forBoth()
	for _, tool := range []string{"dev", "dev-s3"} {
		if err := os.Symlink(filepath.Join(now, tool), filepath.Join(v.bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	for _, binary := range product {
		v.install(version, binary)
	}
	v.bring("--standby")
	return v
}

// newer are the settings in the examples that the previous version does not know, one per line. It
// refuses a config with them, so they are added after an upgrade.
func newer() []string { return nil }

// forBoth removes newer settings from the configs.
func (v *versions) forBoth() {
	v.t.Helper()
	for _, name := range []string{"dev-1.jsonc", "dev-2.jsonc"} {
		text, err := os.ReadFile(filepath.Join(v.examples, name))
		if err != nil {
			v.t.Fatal(err)
		}
		lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
			return slices.ContainsFunc(newer(), func(setting string) bool { return strings.Contains(line, setting) })
		})
		if err := os.WriteFile(filepath.Join(v.examples, name), []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			v.t.Fatal(err)
		}
	}
}

// in returns the same stack for a subtest.
func (v *versions) in(t *testing.T) *versions {
	return &versions{stack: v.stack.in(t), folders: v.folders}
}

// install replaces a binary.
func (v *versions) install(version, binary string) {
	v.t.Helper()
	link, fresh := filepath.Join(v.bin, binary), filepath.Join(v.bin, "."+binary)
	if err := os.Symlink(filepath.Join(v.folders[version], binary), fresh); err != nil {
		v.t.Fatal(err)
	}
	if err := os.Rename(fresh, link); err != nil {
		v.t.Fatal(err)
	}
}

// swap stops a server, and starts it in another version.
func (v *versions) swap(name, version string) {
	v.t.Helper()
	v.dev("stop", name)
	v.start(name, version)
}

// start starts a stopped server in a version.
func (v *versions) start(name, version string) {
	v.t.Helper()
	v.install(version, "nstance-server")
	v.dev("start", name)
	v.eventually(name+" is healthy", func() (bool, string) {
		c := v.component(name)
		return c.Healthy, fmt.Sprintf("%+v", c)
	})
	v.runs(v.component(name).PID, version, "nstance-server")
}

// runs checks which binary a process runs.
func (v *versions) runs(pid int, version, binary string) {
	v.t.Helper()
	want, err := filepath.EvalSymlinks(filepath.Join(v.folders[version], binary))
	if err != nil {
		v.t.Fatal(err)
	}
	got, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || got != want {
		v.t.Fatalf("process %d is %s (%v), want %s", pid, got, err, want)
	}
}

// buildPrevious returns the folder of the previous version's binaries, which it builds once per
// commit and machine. If something for that is missing the test fails: a skip would hide that an
// upgrade was not tested.
func buildPrevious(t *testing.T) string {
	t.Helper()
	pinned, err := os.ReadFile(filepath.Join(root(t), previousFile))
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(pinned))
	if out, err := run(root(t), "git", "cat-file", "-e", commit+"^{commit}"); err != nil {
		t.Fatalf("commit %q of %s is not in this clone, so the previous version can't be built (%v: %s).\n"+
			"Fetch it: git fetch --unshallow (or git fetch origin %s)", commit, previousFile, err, out, commit)
	}
	build := exec.Command(".ci/cached", "binaries/"+commit, ".ci/build-commit", commit, strings.Join(product, " "))
	build.Dir = root(t)
	var said bytes.Buffer
	build.Stderr = &said
	folder, err := build.Output()
	if err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, said.Bytes())
	}
	return string(bytes.TrimSpace(folder))
}

func run(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	return string(bytes.TrimSpace(out)), err
}
