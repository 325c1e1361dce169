package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testName is the name of a test in code font; a folder or a subtest beside it is not part of it.
var testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*)`")

// named is a test that a page names.
type named struct {
	page, test string
	line       int
}

// testsNamed are the tests that a page names in code font.
func testsNamed(p page) (all []named) {
	n := 0
	for line := range strings.SplitSeq(p.text, "\n") {
		n++
		for _, m := range testName.FindAllStringSubmatch(line, -1) {
			all = append(all, named{page: p.path, test: m[1], line: n})
		}
	}
	return all
}

// testsDeclared are the tests of all modules of the repository.
func testsDeclared(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "temp" || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && testName.MatchString("`"+f.Name.Name+"`") {
				found[f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestTestsNamed: a test that a page names exists, so that what the page says of it can be looked up.
func TestTestsNamed(t *testing.T) {
	declared := testsDeclared(t)
	checked := 0
	for _, p := range pages(t) {
		switch {
		case strings.HasPrefix(p.path, "docs/"), p.path == "README.md", p.path == "CONTRIBUTING.md", p.path == "SECURITY.md":
		default:
			continue
		}
		for _, n := range testsNamed(p) {
			checked++
			if !declared[n.test] {
				t.Errorf("%s:%d: no _test.go file declares %s", n.page, n.line, n.test)
			}
		}
	}
	if checked < 50 {
		t.Errorf("found %d names of tests: the search misses them", checked)
	}
}

// TestNamesOfTests: which words of a page count as names of tests, and that a name counts as declared
// only by a function.
func TestNamesOfTests(t *testing.T) {
	got := testsNamed(page{path: "docs/x.md", text: "# `Tests`\n\n`TestA`, `FuzzB` and TestC\n| `BenchmarkD` | `TestdataE` `-run TestF` |\n"})
	want := []named{{"docs/x.md", "TestA", 3}, {"docs/x.md", "FuzzB", 3}, {"docs/x.md", "BenchmarkD", 4}}
	if len(got) != len(want) {
		t.Fatalf("found %v, want %v", got, want)
	}
	for n := range want {
		if got[n] != want[n] {
			t.Errorf("found %v, want %v", got[n], want[n])
		}
	}
	declared := testsDeclared(t)
	if !declared["TestNamesOfTests"] || !declared["FuzzUnseal"] || declared["TestThatIsNotThere"] {
		t.Errorf("of %d tests, the wrong ones count as declared", len(declared))
	}
}
