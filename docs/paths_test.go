package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	span = regexp.MustCompile("`([^`\n]+)`")
	// repoPath matches what begins like a path in this repository, perhaps with a
	// symbol behind it: `pkg/server/plan/next.go:Next`.
	repoPath = regexp.MustCompile(`^((?:pkg|cmd|proto|images|charts|integration|examples|docs|terraform|` +
		`\.ci|\.github)/[A-Za-z0-9._/{},*-]*?|` +
		`Makefile|LICENSE|[A-Z]+\.md|go\.mod|\.golangci\.yml|\.ko\.yaml)(?::([A-Za-z_][A-Za-z0-9_.]*))?$`)
	choice = regexp.MustCompile(`\{([^{}]*,[^{}]*)\}`)
)

// expand writes a{b,c} out.
func expand(path string) []string {
	m := choice.FindStringSubmatchIndex(path)
	if m == nil {
		return []string{path}
	}
	var all []string
	for option := range strings.SplitSeq(path[m[2]:m[3]], ",") {
		all = append(all, expand(path[:m[0]]+strings.TrimSpace(option)+path[m[1]:])...)
	}
	return all
}

// TestPaths looks for every path of this repository that a page names in code
// font, and for the symbol behind it. A {placeholder} ends what can be checked.
func TestPaths(t *testing.T) {
	checked := 0
	for _, p := range pages(t) {
		for _, m := range span.FindAllStringSubmatch(fence.ReplaceAllString(p.text, ""), -1) {
			named := repoPath.FindStringSubmatch(m[1])
			if named == nil {
				continue
			}
			for _, path := range expand(named[1]) {
				checked++
				if dir, _, cut := strings.Cut(path, "{"); cut {
					path = filepath.Dir(dir + "x")
				}
				if found, err := filepath.Glob(filepath.Join(root, path)); err != nil || len(found) == 0 {
					t.Errorf("%s: `%s`: there is no %s", p.path, m[1], path)
				} else if named[2] != "" && !declares(t, found[0], named[2]) {
					t.Errorf("%s: `%s`: %s does not declare %s", p.path, m[1], path, named[2])
				}
			}
		}
	}
	if checked < 30 {
		t.Errorf("checked %d paths: the search misses them", checked)
	}
}

// declares reports whether a Go file, or a file of a folder, declares a symbol:
// a name, or Type.Method or Type.Field.
func declares(t *testing.T, path, symbol string) bool {
	t.Helper()
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		files, _ = filepath.Glob(filepath.Join(path, "*.go"))
	}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if symbols(tree)[symbol] {
			return true
		}
	}
	return false
}

func symbols(file *ast.File) map[string]bool {
	found := map[string]bool{}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			found[d.Name.Name] = true
			if d.Recv != nil {
				found[typeName(d.Recv.List[0].Type)+"."+d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						found[name.Name] = true
					}
				case *ast.TypeSpec:
					found[s.Name.Name] = true
					for _, member := range members(s.Type) {
						found[s.Name.Name+"."+member] = true
					}
				}
			}
		}
	}
	return found
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	default:
		return ""
	}
}

// members are the fields of a struct and the methods of an interface.
func members(e ast.Expr) (names []string) {
	var list *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

func TestExpand(t *testing.T) {
	got := strings.Join(expand("a/{b,c}/{d,e}.go"), " ")
	if want := "a/b/d.go a/b/e.go a/c/d.go a/c/e.go"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDeclares(t *testing.T) {
	for symbol, want := range map[string]bool{
		"page": true, "page.prose": true, "page.text": true, "root": true, "TestLinks": true, "Nothing": false, "page.Nothing": false,
	} {
		if got := declares(t, "docs_test.go", symbol); got != want {
			t.Errorf("%s: %v, want %v", symbol, got, want)
		}
	}
}
