// Package leaktest fails a package's tests if they leave something behind: processes, or files
// outside the folders of their own.
//
// TestMain calls Main, which runs the test binary again as a child process and adopts all
// orphans below it, as init does for a machine (PR_SET_CHILD_SUBREAPER, prctl(2)), whatever
// their process group, session or environment. So the processes left when the tests have ended
// are theirs, never those of other tests on the machine. A network namespace lives as long as a
// process in it, so leaked namespaces are found that way.
//
// TMPDIR is an empty folder that must be empty again at the end, and HOME is a folder in
// which no file may appear. In HOME, the persistent caches (~/.cache/nstance, the ports that
// envtest reserves) and the settings of go, git and docker are links to the real ones, and the
// caches of kubectl and Helm may stay. In the package's folder, including testdata, no file may
// be added or removed.
//
// A test that kills processes must clean up their remains itself. A process that ends by
// itself soon after the tests is not a leak. If the tests fail anyway, files are kept and not
// checked. Tests that start containers must check for leaked containers themselves, in the
// function they pass to Main.
package leaktest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Variable is the environment variable that disables the check if set to 0: the tests then run
// in the original process, for a debugger.
const Variable = "LEAKTEST"

// inside is the value of Variable below a check, so that nested test binaries are not checked.
const inside = "inside"

// patience is how long processes may take to end after the tests. Processes started by tests
// end by themselves after a minute or more, and must be found before that.
const patience = 30 * time.Second

// Main runs a package's tests with run, and exits with the code that run returned, or with 1 if
// something was left behind.
func Main(run func() int) {
	self, err := os.Executable()
	if v := os.Getenv(Variable); v == "0" || v == inside || uncheckable(os.Args[1:]) || err != nil || !supported() {
		os.Exit(run())
	}
	os.Exit(Command(self, os.Args[1:]))
}

// Command runs another program, a test binary, as Main does its own, and returns the exit code.
// The calling process must not have other children meanwhile.
func Command(program string, args []string) int {
	cmd := exec.Command(program, args...) //nolint:noctx // signals end it, and the end of this process does
	if v := os.Getenv(Variable); v != "0" && v != inside && !uncheckable(args) {
		return check(cmd, os.Stderr, patience)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return unchecked(cmd)
}

// unchecked runs a command without the check and returns its exit code.
func unchecked(cmd *exec.Cmd) int {
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// uncheckable reports whether a test binary's arguments make it run no tests in its own
// process: listing, or a fuzzing worker, which keeps files of its own.
func uncheckable(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		name := strings.TrimLeft(arg, "-")
		return strings.HasPrefix(name, "test.fuzz") && !strings.HasPrefix(name, "test.fuzzcachedir") || strings.HasPrefix(name, "test.list")
	})
}
