package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// tested is a package with a built test binary.
type tested struct {
	name   string // its import path
	folder string // the working directory of its tests
	binary string
}

// build compiles the tests of all packages that match patterns and have tests.
func build(ctx context.Context, out io.Writer, folder string, patterns []string) (all []tested, err error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f",
		"{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"}, patterns...)...)
	list.Stderr = os.Stderr
	listed, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(patterns, " "), err)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	env, flags := race(ctx)
	for line := range strings.Lines(string(listed)) {
		name, dir, found := strings.Cut(strings.TrimSpace(line), "\t")
		if !found {
			continue
		}
		p := tested{name: name, folder: dir}
		p.binary = p.file(folder, ".test")
		cmd := exec.CommandContext(ctx, "go", append(append([]string{"test", "-c", "-o", p.binary}, flags...), name)...)
		cmd.Env = env
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w\n%s", name, err, text)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no package that has tests", strings.Join(patterns, " "))
	}
	fmt.Fprintf(out, "packages with tests: %d\n", len(all))
	return all, nil
}

// race returns the flag for the race detector, which needs a C compiler.
func race(ctx context.Context) (env, flags []string) {
	compiler, err := exec.CommandContext(ctx, "go", "env", "CC").Output()
	if err != nil {
		return os.Environ(), nil
	}
	if _, err := exec.LookPath(strings.TrimSpace(string(compiler))); err != nil {
		return os.Environ(), nil
	}
	return append(os.Environ(), "CGO_ENABLED=1"), []string{"-race"}
}

// file returns the path of a file of the package in the common folder.
func (p tested) file(folder, ext string) string {
	return filepath.Join(folder, strings.ReplaceAll(p.name, "/", "_")+ext)
}

// log returns the file of the package's output.
func (p tested) log(folder string) string { return p.file(folder, ".log") }

// run runs the tests once. The error of failed tests has the time that they took.
func (p tested) run(ctx context.Context, o options) error {
	log, err := os.Create(p.log(o.folder))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, p.binary, "-test.run="+o.run, "-test.shuffle=on", "-test.timeout="+o.timeout.String())
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.folder, log, log
	began := time.Now()
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("failed after %.0fs: %w", time.Since(began).Seconds(), err)
		}
		return fmt.Errorf("run its tests: %w", err)
	}
	return nil
}
