package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	described = regexp.MustCompile(`(?m)^([\w-]+):.*? ## (.+)$`)
	listed    = regexp.MustCompile(`^  ([\w-]+) +(\S.*)$`)
)

// TestHelp: make without a target lists each target with a comment once, under a group's header.
func TestHelp(t *testing.T) {
	cmd := exec.Command("make", "--no-print-directory", "-C", root)
	// Otherwise the make that runs the tests would pass its own settings on.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") })
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	var groups []string
	targets, says := map[string][]string{}, map[string]string{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		m := listed.FindStringSubmatch(line)
		switch {
		case line == "":
		case m == nil && strings.HasPrefix(line, " "):
			t.Errorf("a line is neither header nor target: %q", line)
		case m == nil:
			groups = append(groups, line)
		case len(groups) == 0:
			t.Errorf("%s is in no group: put it below a line ##@ GROUP", m[1])
		case says[m[1]] != "":
			t.Errorf("%s is listed twice", m[1])
		default:
			group := groups[len(groups)-1]
			targets[group], says[m[1]] = append(targets[group], m[1]), m[2]
		}
	}
	want := []string{
		"General", "Build", "Development stack", "Development", "Generated files", "Checks", "Tests with more requirements", "Release",
	}
	if !slices.Equal(groups, want) {
		t.Errorf("the groups are %q, want %q", groups, want)
	}
	for _, group := range groups {
		if len(targets[group]) == 0 {
			t.Errorf("group %s has no targets", group)
		}
	}
	all := described.FindAllStringSubmatch(text(t, "Makefile"), -1)
	if len(all) < 40 {
		t.Errorf("found %d targets with a comment: the pattern looks for something else", len(all))
	}
	for _, m := range all {
		if says[m[1]] != m[2] {
			t.Errorf("of %s it lists %q, want %q", m[1], says[m[1]], m[2])
		}
	}
}
