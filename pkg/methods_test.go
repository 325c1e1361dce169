package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// maxMethods is the maximum number of methods: a type with more is several.
const maxMethods = 40

// TestMethods: no type has more than maxMethods, except the election's machine, which is one
// decision without I/O.
func TestMethods(t *testing.T) {
	const exempt = "pkg/server/election.machine"
	counted := methods(t)
	for name, n := range counted {
		if n > maxMethods && name != exempt {
			t.Errorf("%s has %d methods: want at most %d", name, n, maxMethods)
		}
	}
	if counted[exempt] <= maxMethods {
		t.Errorf("%s has %d methods, and needs no exception", exempt, counted[exempt])
	}
}

// methods counts the methods of each type, by folder.type, of all Go files that
// are neither tests nor generated.
func methods(t *testing.T) map[string]int {
	t.Helper()
	counted := map[string]int{}
	err := filepath.WalkDir("..", func(p string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		folder := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(p)), "../")
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				counted[folder+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return counted
}

// receiver returns the name of a method's type, without its pointer and its parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
