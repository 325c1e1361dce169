package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--help", 0, "-lost-after"}, {"--version", 0, "nstance-asg dev"}, {"", exitUsage, "--asg is required"},
		{"--asg g more", exitUsage, `"more"`}, {"--colour", exitUsage, "colour"}, {"--asg g --every soon", exitUsage, "soon"},
		{"--asg g --log-format xml", exitUsage, "want text or json"},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), strings.Fields(c.args), &out, &out); code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: %d, %s; want %d with %q", c.args, code, out.String(), c.code, c.says)
		}
	}
}

// TestPage: every flag is in its page, and none that there is not.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/asg.md")
	if err != nil {
		t.Fatal(err)
	}
	var usage bytes.Buffer
	run(t.Context(), []string{"--help"}, &usage, &usage)
	flags := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  -([a-z-]+)`).FindAllStringSubmatch(usage.String(), -1) {
		flags[m[1]] = true
		if !strings.Contains(string(page), "| `--"+m[1]+"` |") {
			t.Errorf("docs/asg.md has no row for --%s", m[1])
		}
	}
	if len(flags) < 8 {
		t.Errorf("%d flags: the help has more", len(flags))
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		if !flags[m[1]] {
			t.Errorf("docs/asg.md has a row for --%s, which is no flag", m[1])
		}
	}
}
