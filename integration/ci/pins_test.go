package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func text(t *testing.T, path ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

var (
	uses   = regexp.MustCompile(`(?m)^\s*(?:- )?["']?uses["']?:\s*(.+)$`)
	pinned = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*$`)
	image  = regexp.MustCompile(`^docker://\S+@sha256:[0-9a-f]{64}$`)
)

// TestActionsArePinned: an action's tag can be moved to any code, which then has the workflow's
// permissions, such as a release's identity. A commit can't.
func TestActionsArePinned(t *testing.T) {
	var files []string
	for _, pattern := range []string{"workflows/*.yaml", "workflows/*.yml", "actions/*/action.y*ml"} {
		some, err := filepath.Glob(filepath.Join(root, ".github", pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	found := 0
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range uses.FindAllStringSubmatch(string(raw), -1) {
			found++
			if what := strings.TrimSpace(m[1]); !strings.HasPrefix(what, "./") && !pinned.MatchString(what) && !image.MatchString(what) {
				t.Errorf("%s uses %s: want the 40 digits of a commit, and its version behind it, as in owner/name@… # v1.2.3", path, what)
			}
		}
	}
	if found < 10 {
		t.Errorf("%d uses of actions found in %d files: the pattern looks for something else", found, len(files))
	}
}

// TestOneGo: modules, images and workflows use the same version of Go.
func TestOneGo(t *testing.T) {
	want := regexp.MustCompile(`(?m)^\s*- GOTOOLCHAIN=(go\S+)$`).FindStringSubmatch(text(t, ".ko.yaml"))
	if want == nil {
		t.Fatal(".ko.yaml pins no Go: want GOTOOLCHAIN=go1.2.3")
	}
	modules, skipped := 0, []string{"bin", "temp", "testdata"}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || slices.Contains(skipped, entry.Name())) {
			return filepath.SkipDir
		}
		if entry.Name() != "go.mod" {
			return nil
		}
		modules++
		raw, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(raw), "\ntoolchain "+want[1]+"\n") {
			t.Errorf("%s has not the line toolchain %s, which .ko.yaml pins", path, want[1])
		}
		return err
	})
	if err != nil || modules < 3 {
		t.Errorf("%d modules found: %v", modules, err)
	}
	workflows, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*"))
	if err != nil || len(workflows) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	for _, path := range workflows {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		setups := strings.Count(string(raw), "actions/setup-go@")
		if named := strings.Count(string(raw), "go-version-file: go.mod"); named != setups || strings.Contains(string(raw), "go-version:") {
			t.Errorf("%s sets up Go %d times, %d times by go.mod: want each so, and no go-version", path, setups, named)
		}
	}
}

// TestRenovateSeesAllPins: every pinned version is updated by Renovate.
func TestRenovateSeesAllPins(t *testing.T) {
	var config struct {
		Extends, EnabledManagers []string
		Gomod                    struct{ ManagerFilePatterns []string }
		CustomManagers           []struct{ ManagerFilePatterns, MatchStrings []string }
	}
	if err := json.Unmarshal([]byte(text(t, ".github", "renovate.json")), &config); err != nil {
		t.Fatal(err)
	}
	for _, manager := range []string{"gomod", "github-actions", "custom.regex"} {
		if !slices.Contains(config.EnabledManagers, manager) {
			t.Errorf("the manager %s is not enabled", manager)
		}
	}
	if !slices.Contains(config.Extends, "helpers:pinGitHubActionDigests") {
		t.Error("a new action is not pinned by its commit")
	}
	tools, err := filepath.Glob(filepath.Join(root, ".ci", "tools", "*.mod"))
	if err != nil || len(tools) < 10 {
		t.Fatalf("%d tools: %v", len(tools), err)
	}
	modules := []string{
		"go.mod", "cmd/dev-k8s/go.mod", "integration/terraform/go.mod", "integration/monitoring/go.mod", "integration/dashboard/go.mod",
	}
	for _, path := range append(modules, tools...) {
		path := strings.TrimPrefix(filepath.ToSlash(path), root+"/")
		if !slices.ContainsFunc(config.Gomod.ManagerFilePatterns, func(p string) bool {
			return regexp.MustCompile(strings.Trim(p, "/")).MatchString(path)
		}) {
			t.Errorf("no pattern of the manager gomod is of %s: %q", path, config.Gomod.ManagerFilePatterns)
		}
	}
	if len(config.CustomManagers) != 2 {
		t.Errorf("%d managers of .ko.yaml, want 2: of the base image and of Go", len(config.CustomManagers))
	}
	for _, custom := range config.CustomManagers {
		for _, pattern := range custom.MatchStrings {
			// Renovate's patterns are JavaScript's, in which named groups are written differently.
			if !regexp.MustCompile(strings.ReplaceAll(pattern, "(?<", "(?P<")).MatchString(text(t, ".ko.yaml")) {
				t.Errorf("%s matches nothing of .ko.yaml", pattern)
			}
		}
	}
}
