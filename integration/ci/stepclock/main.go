// Command stepclock writes a go build overlay that adds time.StepClock to package time, and prints its
// path: stepclock DIR. With it a test moves the wall clock of its process as NTP or an administrator
// would, and the monotonic clock goes on. Bubbles of testing/synctest, whose times have no reading
// of the monotonic clock otherwise, get both.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// now is the beginning of time.Now, which is the only place where package time reads the wall clock.
const now = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {\n"

// stepped is the same with both clocks: in a bubble, runtimeNano reads the fake one.
const stepped = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {\n\t\tmono = runtimeNano()\n\t}\n" +
	"\tsec += clockSteps.Load()\n\tif mono == 0 {\n"

const steps = `package time

import "sync/atomic"

var clockSteps atomic.Int64 // in seconds

// StepClock moves the wall clock by whole seconds. Safe for concurrent use.
func StepClock(d Duration) { clockSteps.Add(int64(d / Second)) }
`

func main() {
	path, err := overlay(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "stepclock: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

// overlay writes the overlay and its files into a folder, and returns its path.
func overlay(ctx context.Context, args []string) (string, error) {
	if len(args) != 1 {
		return "", errors.New("usage: stepclock DIR")
	}
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return "", err
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find Go's sources: %w", err)
	}
	of := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(of, "time.go"))
	if err != nil {
		return "", err
	}
	if strings.Count(string(source), now) != 1 {
		return "", fmt.Errorf("%s: time.Now is not as it was in Go 1.26", of)
	}
	files := map[string]string{"time.go": strings.Replace(string(source), now, stepped, 1), "step.go": steps}
	replace := map[string]string{}
	for name, text := range files {
		path := filepath.Join(dir, name+".txt") // no package of the module that it may be in
		replace[filepath.Join(of, name)] = path
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
