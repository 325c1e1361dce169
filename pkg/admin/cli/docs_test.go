package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Patterns of commands in a page: nstance-admin with its arguments, on a line of a shell block,
// or between backticks.
var (
	block      = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```")
	inline     = regexp.MustCompile("`(?:bin/)?nstance-admin ([^`]+)`")
	shellLine  = regexp.MustCompile(`(?m)(?:^|[ /$(;&|])nstance-admin ((?:[^\n\\;|&)]|\\\n)+)`)
	assignment = regexp.MustCompile(`^[A-Z_]+=`)
)

func documented(page string) []string {
	var out []string
	for _, m := range inline.FindAllStringSubmatch(block.ReplaceAllString(page, ""), -1) {
		out = append(out, m[1])
	}
	for _, b := range block.FindAllStringSubmatch(page, -1) {
		for _, m := range shellLine.FindAllStringSubmatch(b[1], -1) {
			out = append(out, strings.ReplaceAll(m[1], "\\\n", " "))
		}
	}
	return out
}

// words returns the arguments of a command without placeholders, optional parts, redirections
// and comments.
func words(command string) []string {
	for _, end := range []string{" #", " >", " <", " -- "} {
		command, _, _ = strings.Cut(command, end)
	}
	return slices.DeleteFunc(strings.Fields(command), func(w string) bool {
		return strings.ContainsAny(w, "…[]'\"") || assignment.MatchString(w)
	})
}

// TestCommandsInDocs: each command in the docs exists, with its flags.
func TestCommandsInDocs(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/*.md")
	more, err2 := filepath.Glob("../../../docs/*/*.md")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	var tried int
	for _, name := range append(pages, more...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range documented(string(text)) {
			args := words(command)
			if len(args) == 0 {
				continue
			}
			tried++
			if r := run(t, nil, append(slices.Clone(args), "--help")...); !isHelpOf(r.out, args) {
				t.Errorf("%s: nstance-admin %s: no such command: %s%s", filepath.Base(name), command, r.errOut, r.out)
			}
		}
	}
	if tried < 50 {
		t.Errorf("found only %d commands", tried)
	}
}

// isHelpOf reports whether a help text is that of the command in args, and not that of its
// parent, which is printed for an unknown subcommand.
func isHelpOf(help string, args []string) bool {
	_, usage, _ := strings.Cut(help, "Usage:\n")
	usage, _, _ = strings.Cut(usage, "\n")
	parts := strings.Fields(usage)
	if len(parts) < 2 {
		return false
	}
	for len(args) > 1 && args[0] == "--timeout" {
		args = args[2:]
	}
	n := 0
	for _, part := range parts[1:] {
		if part != strings.ToLower(part) || strings.HasPrefix(part, "[") {
			break
		}
		if n >= len(args) || args[n] != part {
			return false
		}
		n++
	}
	above := strings.Contains(help, "Available Commands:")
	return !above || n == len(args) || strings.HasPrefix(args[n], "-")
}

// TestDocumented: commands in a page are found, and wrong ones are detected.
func TestDocumented(t *testing.T) {
	page := "Use `nstance-admin group list -o json` or `nstance-server`.\n\n```sh\n" +
		"A=b \\\n  nstance-admin group scale web 5 \\\n    --wait # now\n" +
		"nstance-admin watch | head\nnstance-admin instance drain -- echo --x\n```\n"
	want := [][]string{
		{"group", "list", "-o", "json"}, {"group", "scale", "web", "5", "--wait"}, {"watch"}, {"instance", "drain"},
	}
	var got [][]string
	for _, command := range documented(page) {
		got = append(got, words(command))
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("found %q, want %q", got, want)
	}
	for command, want := range map[string]bool{
		"group scale web 5 --wait": true, "group scale web 5 --wat": false, "group lst": false, "group": true, "grup list": false,
		"--timeout 3s group scale web 5": true, "--timeout 3s group scal web 5": false,
	} {
		args := words(command)
		if r := run(t, nil, append(slices.Clone(args), "--help")...); isHelpOf(r.out, args) != want {
			t.Errorf("%s: a command: %t (exit %d), want %t", command, !want, r.code, want)
		}
	}
}
