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

// Each step is a target of the Makefile, and needs only a step before it.
func TestSteps(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for tier, all := range map[string][]step{"make ci": gate(), "make ci-all": everything()} {
		var before []string
		for _, s := range all {
			if slices.Contains(before, s.name) {
				t.Errorf("%s has %s twice", tier, s.name)
			}
			if s.needs != "" && !slices.Contains(before, s.needs) {
				t.Errorf("%s: %s needs %s, which is not before it", tier, s.name, s.needs)
			}
			if s.command[0] == "make" && !regexp.MustCompile(`(?m)^([\w-]+ )*`+s.name+`( [\w-]+)*:`).Match(makefile) {
				t.Errorf("%s: the Makefile has no target %s", tier, s.name)
			}
			before = append(before, s.name)
		}
	}
}

// What only the gate's targets name is there: go test passes where a name is of no test.
func TestGateNamesTests(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\t.*-run '\^\(?([\w|]+)\)?\$\$'.* \./(integration/\w+)$`).FindAllStringSubmatch(string(makefile), -1)
	if len(found) < 2 {
		t.Fatalf("%d targets run tests of integration by name, want 2 at least", len(found))
	}
	for _, m := range found {
		var code strings.Builder
		files, err := filepath.Glob(filepath.Join("../..", m[2], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
		for name := range strings.SplitSeq(m[1], "|") {
			if !strings.Contains(code.String(), "\nfunc "+name+"(t *testing.T)") {
				t.Errorf("the Makefile runs %s, which %s does not have", name, m[2])
			}
		}
	}
}

// Whatever is built without a network is downloaded before: each module of tests, and each tool
// that stories build. make downloads-check tries it.
func TestDownloadsNameAll(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "make", "-n", "-C", root, "downloads").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	here := checkout{t, false}
	named := strings.FieldsFunc(string(out), func(r rune) bool { return strings.ContainsRune(" ;\n", r) })
	for _, want := range append(here.modules(), here.tools()...) {
		if !slices.Contains(named, want) && !strings.Contains(string(out), "/"+want+".mod") {
			t.Errorf("make downloads does not name %s:\n%s", want, out)
		}
	}
}
