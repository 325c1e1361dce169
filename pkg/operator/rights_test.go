package operator_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestMarkersAreSeen: controller-gen silently ignores markers in the comment of a function, and the
// permissions would be missing.
func TestMarkersAreSeen(t *testing.T) {
	const marker = "+kubebuilder:rbac:"
	found := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, group := range file.Comments {
			for _, line := range group.List {
				if strings.Contains(line.Text, marker) {
					found++
				}
			}
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Doc != nil {
				for _, line := range f.Doc.List {
					if strings.Contains(line.Text, marker) {
						t.Errorf("%s: a marker in the comment of %s is not seen: put it into a comment of its own above, with an empty line between",
							set.Position(line.Pos()), f.Name.Name)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 5 {
		t.Errorf("found %d markers: the search misses them", found)
	}
}
