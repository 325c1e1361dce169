package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// checkout is this project, in which commands are run.
type checkout struct {
	*testing.T
	canSeclude bool
}

// run returns the output of a command that must succeed.
func (c checkout) run(folder string, command ...string) string {
	c.Helper()
	return c.output(folder, exec.CommandContext(c.Context(), command[0], command[1:]...))
}

// isolated is run without a network, where that is possible.
func (c checkout) isolated(folder string, command ...string) {
	c.Helper()
	if !c.canSeclude {
		c.run(folder, command...)
		return
	}
	c.output(folder, secludedCommand(c.Context(), command))
}

func (c checkout) output(folder string, cmd *exec.Cmd) string {
	c.Helper()
	cmd.Dir = filepath.Join(root, folder)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		c.Errorf("%s: %s: %v\n%s", folder, strings.Join(cmd.Args, " "), err, said.String())
	}
	return string(out)
}

// modules returns the folders of the modules that are compiled without a network. The dashboard's
// tests run a browser, in a step that has one.
func (c checkout) modules() (folders []string) {
	c.Helper()
	for _, file := range strings.Fields(c.run(".", "git", "ls-files", "go.mod", ":(glob)**/go.mod")) {
		if folder := filepath.Dir(file); folder != "integration/dashboard" {
			folders = append(folders, folder)
		}
	}
	if len(folders) < 2 {
		c.Errorf("found only the modules %v", folders)
	}
	return folders
}

// tools returns the names of the module files of the tools that are built without a network.
func (c checkout) tools() (names []string) {
	c.Helper()
	named := regexp.MustCompile(`(?:tools/|"tools", ")([a-z0-9-]+)\.mod"`)
	for _, file := range strings.Fields(c.run(".", "git", "ls-files", "integration/operator/*.go", "integration/ci/gotest/*.go")) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			c.Fatal(err)
		}
		for _, found := range named.FindAllStringSubmatch(string(text), -1) {
			names = append(names, found[1])
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) < 2 {
		c.Errorf("found only %v, want gotestsum and helm at the least", names)
	}
	return names
}
