package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// timed is the code that is searched for times: all test code, by folder.
type timed map[string]*testFolder

// testFolder is a folder's test code. A name stands for everything with this name in the folder,
// methods of several types included: that is coarse, but needs no type information.
type testFolder struct {
	path  string
	name  string // the package's
	files []*testFile
	// values are the values of constants and variables, by package, of which a folder with external
	// tests has two. The product's are included, for internal tests.
	values map[named][]ast.Expr
	// runners are functions that run an argument in simulated time.
	runners map[string]bool
	// bounded are functions' parameters that bound a duration.
	bounded map[string]map[int]bool
	// measured are measured times: results of functions, by name and position, and fields and
	// channels, by name.
	measured map[string]map[int]clock
	fields   map[string]clock
}

// testFile is one file of test code.
type testFile struct {
	path    string
	pkg     string
	set     *token.FileSet
	folder  *testFolder
	imports map[string]string // imported folders of this repository, by their names in the file
	decls   []*declaration
	bubbles []span // parts that run in simulated time
}

// span is a range of source code.
type span struct{ from, to token.Pos }

// declaration is a function, a method, a type, a variable or a constant of a package.
type declaration struct {
	file    *testFile
	name    string
	of      string // the type, of a method
	node    ast.Node
	free    bool // only used in simulated time and benchmarks
	params  map[string]int
	locals  map[string][]ast.Expr
	elapsed map[string]clock // variables with measured times
}

func (d *declaration) key() string { return d.file.path + " " + d.name }

func (d *declaration) line(n ast.Node) int { return d.file.set.Position(n.Pos()).Line }

// repository reads all test code: test files, packages for tests, and all of integration.
func repository(t *testing.T, root string) timed {
	t.Helper()
	parsed, all := map[string]*ast.File{}, timed{}
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "temp" || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go"):
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		parsed[name], err = parser.ParseFile(set, name, text, parser.SkipObjectResolution)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	support := supporting(parsed)
	for name, tree := range parsed {
		tests := strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "integration/") || support[path.Dir(name)]
		all.add(set, name, tree, tests)
	}
	return all
}

// supporting returns the folders whose non-test files import testing, since they are for tests.
func supporting(parsed map[string]*ast.File) map[string]bool {
	out := map[string]bool{}
	for name, tree := range parsed {
		for _, i := range tree.Imports {
			if i.Path.Value == `"testing"` && !strings.HasSuffix(name, "_test.go") {
				out[path.Dir(name)] = true
			}
		}
	}
	return out
}

// add adds a file. Of a file that is not test code, only the constants are added.
func (all timed) add(set *token.FileSet, name string, tree *ast.File, tests bool) {
	dir := path.Dir(name)
	f := all[dir]
	if f == nil {
		f = &testFolder{
			path: dir, values: map[named][]ast.Expr{}, runners: map[string]bool{}, bounded: map[string]map[int]bool{},
			measured: map[string]map[int]clock{}, fields: map[string]clock{},
		}
		all[dir] = f
	}
	if !strings.HasSuffix(tree.Name.Name, "_test") {
		f.name = tree.Name.Name
	}
	file := &testFile{path: name, pkg: tree.Name.Name, set: set, folder: f, imports: map[string]string{}}
	for _, i := range tree.Imports {
		if p, _ := strconv.Unquote(i.Path.Value); strings.HasPrefix(p, module) {
			p = strings.TrimPrefix(p, module)
			as := path.Base(p)
			if i.Name != nil {
				as = i.Name.Name
			}
			file.imports[as] = p
		}
	}
	for _, d := range tree.Decls {
		file.declare(d)
	}
	if tests {
		f.files = append(f.files, file)
	}
}

// declare adds what a declaration declares.
func (f *testFile) declare(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		d := f.declared(decl.Name.Name, decl)
		if decl.Recv != nil && len(decl.Recv.List) > 0 {
			d.of = receiver(decl.Recv.List[0].Type)
		}
		n := 0
		for _, field := range decl.Type.Params.List {
			for _, name := range field.Names {
				d.params[name.Name] = n
				n++
			}
		}
	case *ast.GenDecl:
		for _, s := range decl.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				f.declared(s.Name.Name, s)
			case *ast.ValueSpec:
				for n, name := range s.Names {
					f.declared(name.Name, s)
					if len(s.Values) == len(s.Names) {
						of := named{f.pkg, name.Name}
						f.folder.values[of] = append(f.folder.values[of], s.Values[n])
					}
				}
			}
		}
	}
}

func (f *testFile) declared(name string, n ast.Node) *declaration {
	d := &declaration{
		file: f, name: name, node: n, params: map[string]int{}, locals: map[string][]ast.Expr{}, elapsed: map[string]clock{},
	}
	f.decls = append(f.decls, d)
	return d
}

// named is a name in a folder or package.
type named struct{ folder, name string }

// mayMean returns the declarations that an expression may name: in the folder, in an imported
// package, or a method of either.
func (f *testFile) mayMean(e ast.Expr) (out []named) {
	switch e := e.(type) {
	case *ast.Ident:
		return []named{{f.folder.path, e.Name}}
	case *ast.IndexExpr:
		return f.mayMean(e.X)
	case *ast.IndexListExpr:
		return f.mayMean(e.X)
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok && f.imports[x.Name] != "" {
			return []named{{f.imports[x.Name], e.Sel.Name}}
		}
		out = append(out, named{f.folder.path, e.Sel.Name})
		for _, dir := range f.imports {
			if dir != f.folder.path && e.Sel.IsExported() {
				out = append(out, named{dir, e.Sel.Name})
			}
		}
	}
	return out
}

// qualified returns a selector as it is written: time.Since.
func qualified(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if x := qualified(e.X); x != "" {
			return x + "." + e.Sel.Name
		}
	}
	return ""
}
