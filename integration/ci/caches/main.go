// Command caches lists the build results kept under ~/.cache/nstance, and removes the least
// recently used ones while they exceed the limit. It is run by .ci/caches; .ci/cached builds
// entries, and marks them as used.
//
//	.ci/caches report    the entries, and the cost of rebuilding them
//	.ci/caches prune     remove what exceeds the limit
//
// An entry is named KIND/NAME, where the name identifies its sources. Its folder's modification
// time is that of its last use.
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

// folder is where .ci/cached keeps everything.
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
