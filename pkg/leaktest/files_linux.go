package leaktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// place is the set of folders that tests may write to.
type place struct {
	temp string // TMPDIR, and in it HOME
	vars []string
}

const home = "home"

// ofTools reports whether a folder of HOME is a cache of kubectl or Helm.
func ofTools(folder string) bool { return folder == ".kube/cache" || folder == ".cache/helm" }

// kept returns the entries of HOME and its cache folder that link to the real ones.
func kept(realHome, realCache string) map[string]string {
	links := map[string]string{}
	for _, name := range []string{".config/go", ".docker", ".gitconfig"} {
		links[name] = filepath.Join(realHome, name)
	}
	for _, name := range []string{"nstance", "kubebuilder-envtest"} {
		links[filepath.Join(".cache", name)] = filepath.Join(realCache, name)
	}
	return links
}

func newPlace() (place, error) {
	vars, err := placesOfGo()
	if err != nil {
		return place{}, err
	}
	// Keep the path short: socket paths are limited to 107 bytes.
	temp, err := os.MkdirTemp("", "t")
	if err != nil {
		return place{}, err
	}
	p := place{temp: temp, vars: vars}
	// Writable for other users, as /tmp is: some tests run programs as another user.
	if err := errors.Join(os.Chmod(temp, 0o777|fs.ModeSticky), p.makeHome()); err != nil {
		return place{}, errors.Join(err, p.remove())
	}
	return p, nil
}

func (p place) makeHome() error {
	realHome, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	realCache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	for name, to := range kept(realHome, realCache) {
		link := filepath.Join(p.temp, home, name)
		if strings.HasPrefix(name, ".cache/") { // programs can't create it through a dangling link
			if err := os.MkdirAll(to, 0o755); err != nil {
				return err
			}
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(to, link)); err != nil {
			return err
		}
	}
	return nil
}

// placesOfGo returns variables that point go to its usual folders despite another HOME; none if
// go is not installed.
func placesOfGo() ([]string, error) {
	all := []string{"GOPATH", "GOMODCACHE", "GOCACHE"}
	out, err := exec.CommandContext(context.Background(), "go", append([]string{"env"}, all...)...).Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	values := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if len(values) != len(all) {
		return nil, fmt.Errorf("go env says %q", out)
	}
	for n, value := range values {
		all[n] += "=" + value
	}
	return all, nil
}

// env returns the environment of the tests.
func (p place) env() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "XDG_") && strings.Contains(v, "_HOME=")
	})
	env = append(env, p.vars...)
	return append(env, "TMPDIR="+p.temp, "HOME="+filepath.Join(p.temp, home), Variable+"="+inside)
}

// leaks lists the files left in TMPDIR and HOME, and those added to or removed from the working
// directory.
func (p place) leaks(before map[string]bool) (lines []string, err error) {
	entries, err := os.ReadDir(p.temp)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() != home {
			lines = append(lines, "in TMPDIR: "+e.Name())
		}
	}
	at := filepath.Join(p.temp, home)
	realHome, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	links := kept(realHome, "")
	err = filepath.WalkDir(at, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(at, path)
		if err == nil && e.IsDir() && ofTools(name) {
			return fs.SkipDir
		}
		if _, ok := links[name]; err == nil && !ok && !e.IsDir() {
			lines = append(lines, "in HOME: "+name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := names(".")
	return append(lines, changes(before, after)...), err
}

// names returns the names in a folder, and recursively those in its testdata. Files that go
// test creates and .gitignore lists are left out.
func names(folder string) (map[string]bool, error) {
	all := map[string]bool{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".test" && ext != ".prof" {
			all[e.Name()] = true
		}
	}
	if !all["testdata"] {
		return all, nil
	}
	return all, filepath.WalkDir(filepath.Join(folder, "testdata"), func(path string, _ fs.DirEntry, err error) error {
		all[path] = true
		return err
	})
}

// changes lists the names added and removed.
func changes(before, after map[string]bool) (lines []string) {
	for name := range after {
		if !before[name] {
			lines = append(lines, "in the package's folder: "+name)
		}
	}
	for name := range before {
		if !after[name] {
			lines = append(lines, "gone from the package's folder: "+name)
		}
	}
	slices.Sort(lines)
	return lines
}

// remove removes the folder, including read-only subfolders.
func (p place) remove() error {
	_ = filepath.WalkDir(p.temp, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	})
	return os.RemoveAll(p.temp)
}

// keep removes the folder unless it has files that may explain a failure.
func (p place) keep(said io.Writer) error {
	entries, err := os.ReadDir(p.temp)
	if err != nil {
		return err
	}
	if len(entries) <= 1 {
		return p.remove()
	}
	var list bytes.Buffer
	for _, e := range entries {
		if e.Name() != home {
			fmt.Fprintf(&list, " %s", e.Name())
		}
	}
	fmt.Fprintf(said, "kept in %s:%s\n", p.temp, list.String())
	return nil
}
