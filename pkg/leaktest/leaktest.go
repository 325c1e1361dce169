// Package leaktest fails a package's tests that leave something behind: processes, and
// files outside the folders that each test has of its own.
//
// Main is called by TestMain. It runs the test binary once more, as its child, and is for
// all that the child starts what init is for a machine: a process whose parent has ended
// becomes a child of it (PR_SET_CHILD_SUBREAPER, prctl(2)), whatever its process group,
// session or environment. So what is left when the tests have ended is theirs, and
// processes of other tests on the same machine are never among it. A network namespace
// lives as long as a process in it, so it is found with that.
//
// TMPDIR is an empty folder that has to be empty again at the end, and HOME is one in which
// no file may appear. There, the caches that are kept (~/.cache/nstance, the ports that
// envtest reserves) and the settings of go, git and docker are links to the real ones, and
// what kubectl and Helm keep for themselves may stay. In the package's folder, testdata
// included, no name may come or go.
//
// A test whose processes were killed for it has to clean up itself: what still ends by
// itself soon is no leak. Where the tests fail anyway, files are kept and not
// judged. What is left on a container engine has to be found by the tests that start
// containers; they do it in what they give to Main.
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

// Variable is the environment variable that, set to 0, has the tests run unchecked: in the
// process that was started, for a debugger.
const Variable = "LEAKTEST"

// inside is its value in what runs below a check: no test binary there is checked again.
const inside = "inside"

// patience is how long what was told to end may take for it. Processes that tests start end
// by themselves after a minute or more, and are to be found before that.
const patience = 30 * time.Second

// Main runs a package's tests, as run does, and ends the process with the code that run
// returned, or with 1 where something was left behind.
func Main(run func() int) {
	self, err := os.Executable()
	if v := os.Getenv(Variable); v == "0" || v == inside || uncheckable(os.Args[1:]) || err != nil || !supported() {
		os.Exit(run())
	}
	os.Exit(Command(self, os.Args[1:]))
}

// Command runs another program, a test binary, as Main does its own, and returns the code to
// end with. The calling process may have no other child meanwhile.
func Command(program string, args []string) int {
	cmd := exec.Command(program, args...) //nolint:noctx // signals end it, and the end of this process does
	if v := os.Getenv(Variable); v != "0" && v != inside && !uncheckable(args) {
		return check(cmd, os.Stderr, patience)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return unchecked(cmd)
}

// unchecked runs a command, and returns the code to end with.
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

// uncheckable reports whether arguments of a test binary have it run no tests of its own
// process: it lists them, or is a part of fuzzing, which has files of its own to keep.
func uncheckable(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		name := strings.TrimLeft(arg, "-")
		return strings.HasPrefix(name, "test.fuzz") && !strings.HasPrefix(name, "test.fuzzcachedir") || strings.HasPrefix(name, "test.list")
	})
}
