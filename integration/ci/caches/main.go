// Command caches says what is built once and kept under ~/.cache/nstance, and removes what
// was not used for the longest when that is more than may be kept. It is run by .ci/caches;
// .ci/cached builds what is kept, and marks what is used.
//
//	.ci/caches report    what is there, and what a start without it costs
//	.ci/caches prune     remove what is too much
//
// What is kept is named KIND/NAME, and the name says what it was built from. Its folder's
// modification time is that of its last use.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Getenv, os.Stdout, time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "caches:", err)
		os.Exit(1)
	}
}

func run(args []string, getenv func(string) string, out io.Writer, now time.Time) error {
	most, err := limit(getenv(variable))
	if err != nil {
		return err
	}
	dir, err := folder(getenv)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "report":
		all, err := read(dir, inUse)
		if err != nil {
			return err
		}
		return report(out, shortened(dir, getenv("HOME")), all, most)
	case len(args) == 1 && args[0] == "prune":
		return prune(dir, out, most, now, inUse)
	}
	return errors.New("want report or prune")
}

// folder is where everything is kept: where .ci/cached puts it.
func folder(getenv func(string) string) (string, error) {
	if cache := getenv("XDG_CACHE_HOME"); cache != "" {
		return filepath.Join(cache, "nstance"), nil
	}
	home := getenv("HOME")
	if home == "" {
		return "", errors.New("neither XDG_CACHE_HOME nor HOME is set: there is no folder for caches")
	}
	return filepath.Join(home, ".cache", "nstance"), nil
}
