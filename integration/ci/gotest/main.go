// Command gotest runs go test, and runs a test that failed again, alone and at most twice: one that
// passes then depends on chance, which is named and fails nothing.
//
//	gotest [flags of go test] packages
//
// The packages come last and begin with "./". What is wrong each time it happens is never run
// again: a package that does not compile, a panic of a test binary, a data race, and what the tests
// of a package left behind (pkg/leaktest). Nor is anything if more than four tests failed.
//
// Each test that depended on chance is named at the end, in a line CHANCE: PACKAGE.TEST.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The limits of what is run again.
const (
	mostRuns  = "2"
	mostTests = "4"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		stop()
		os.Exit(1)
	}
}

// run runs go test in the working folder.
func run(ctx context.Context, args []string, out io.Writer) error {
	tool, err := gotestsum(ctx)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "gotest-*.json")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	cmd := exec.CommandContext(ctx, tool, arguments(args, file.Name())...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	failed := cmd.Run()
	chance, broken, err := judge(file)
	if err != nil {
		return errors.Join(failed, err)
	}
	for _, p := range broken {
		fmt.Fprintf(out, "FAIL\t%s\tbut none of its tests: this is not run again\n", p)
	}
	for _, test := range chance {
		fmt.Fprintf(out, "CHANCE: %s\n", test)
	}
	if failed == nil && len(broken) > 0 {
		return errors.New("packages failed")
	}
	return failed
}

// gotestsum returns the program's path. It is built if it is not in Go's cache.
func gotestsum(ctx context.Context) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", "-modfile=.ci/tools/gotestsum.mod", "gotestsum")
	cmd.Dir = filepath.Dir(filepath.Dir(self)) // it is in bin
	if root := os.Getenv("GOTEST_ROOT"); root != "" {
		cmd.Dir = root
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build gotestsum: %w", err)
	}
	return strings.TrimSpace(string(path)), nil
}

// arguments returns gotestsum's for those of go test.
func arguments(args []string, file string) []string {
	var packages, flags []string
	format := "standard-quiet"
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, "./"):
			packages = append(packages, a)
		case a == "-v":
			format = "standard-verbose"
		default:
			flags = append(flags, a)
		}
	}
	return append([]string{
		"--format=" + format, "--hide-summary=skipped", "--jsonfile=" + file, "--rerun-fails=" + mostRuns,
		"--rerun-fails-max-failures=" + mostTests, "--rerun-fails-abort-on-data-race", "--rerun-fails-run-root-test",
		"--packages=" + strings.Join(packages, " "), "--",
	}, flags...)
}

// event is a line of go test -json (go doc test2json).
type event struct{ Action, Package, Test string }

// judge reads the events of all runs. It returns the tests that failed and then passed, and the
// packages that failed without a failed test, such as those whose tests left something behind.
func judge(events io.Reader) (chance, broken []string, err error) {
	failed, last := map[string]bool{}, map[string]string{}
	failures := map[string]int{} // of tests, by package, in its present run
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action != "pass" && e.Action != "fail" {
			continue // the output of a build is no event
		}
		switch {
		case e.Test == "" && e.Action == "fail" && failures[e.Package] == 0:
			broken = append(broken, e.Package)
		case e.Test == "":
			failures[e.Package] = 0
		case e.Action == "fail":
			failures[e.Package]++
			failed[e.Package+"."+e.Test] = true
		}
		last[e.Package+"."+e.Test] = e.Action
	}
	for test := range failed {
		if last[test] == "pass" && !strings.Contains(test[strings.LastIndexByte(test, '.'):], "/") {
			chance = append(chance, test)
		}
	}
	slices.Sort(chance)
	slices.Sort(broken)
	return chance, slices.Compact(broken), lines.Err()
}
