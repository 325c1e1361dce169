package pkg_test

import (
	"go/ast"
	"go/token"
	"strings"
)

// within reports whether a place is in one of the spans.
func within(all []span, at token.Pos) bool {
	for _, s := range all {
		if s.from <= at && at < s.to {
			return true
		}
	}
	return false
}

// findFree finds code that runs in simulated time: arguments of synctest.Test, or of a function
// that passes them to it, and declarations that are only used by such code, or by benchmarks.
func (all timed) findFree() {
	for more := true; more; {
		more = false
		for _, folder := range all {
			for _, file := range folder.files {
				more = file.findBubbles(all) || more
			}
		}
	}
	all.findReached()
}

// findBubbles finds the simulated parts of a file, and reports whether it found new functions that
// simulate an argument.
func (f *testFile) findBubbles(all timed) (more bool) {
	f.bubbles = nil
	for _, d := range f.decls {
		own := d.bubbles(all)
		f.bubbles = append(f.bubbles, own...)
		decl, ok := d.node.(*ast.FuncDecl)
		if !ok || f.folder.runners[d.name] || !runsArgument(decl, own) {
			continue
		}
		f.folder.runners[d.name], more = true, true
	}
	return more
}

// bubbles returns the arguments that calls run in simulated time. If there are some, functions
// stored for later, as in tables, run there too.
func (d *declaration) bubbles(all timed) (out []span) {
	var stored []span
	store := func(exprs []ast.Expr) {
		for _, e := range exprs {
			if pair, ok := e.(*ast.KeyValueExpr); ok {
				e = pair.Value
			}
			if lit, ok := e.(*ast.FuncLit); ok {
				stored = append(stored, span{lit.Pos(), lit.End()})
			}
		}
	}
	ast.Inspect(d.node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if all.runs(d.file, n.Fun) {
				out = append(out, span{n.Lparen, n.Rparen})
			}
		case *ast.AssignStmt:
			store(n.Rhs)
		case *ast.CompositeLit:
			store(n.Elts)
		}
		return true
	})
	if len(out) > 0 {
		out = append(out, stored...)
	}
	return out
}

// runs reports whether the function runs an argument in simulated time.
func (all timed) runs(f *testFile, fun ast.Expr) bool {
	if qualified(fun) == "synctest.Test" {
		return true
	}
	for _, n := range f.mayMean(fun) {
		if to := all[n.folder]; to != nil && to.runners[n.name] {
			return true
		}
	}
	return false
}

// runsArgument reports whether a function parameter is used in a simulated part.
func runsArgument(decl *ast.FuncDecl, bubbles []span) (found bool) {
	functions := map[string]bool{}
	for _, field := range decl.Type.Params.List {
		kind := field.Type
		if many, ok := kind.(*ast.Ellipsis); ok {
			kind = many.Elt
		}
		if _, ok := kind.(*ast.FuncType); ok {
			for _, name := range field.Names {
				functions[name.Name] = true
			}
		}
	}
	if decl.Body == nil || len(functions) == 0 {
		return false
	}
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && functions[id.Name] && within(bubbles, id.Pos()) {
			found = true
		}
		return !found
	})
	return found
}

// mention is a place where a name is used.
type mention struct {
	in     *declaration
	bubble bool
	method bool // or a field: nothing else is meant
}

// findReached finds the declarations that are not reached in real time. It begins with all and
// removes those used elsewhere, so that two that only use each other remain.
func (all timed) findReached() {
	uses, types := map[named][]mention{}, map[named]*declaration{}
	all.declarations(func(d *declaration) {
		d.free = true
		d.mentions(func(n named, m mention) { uses[n] = append(uses[n], m) })
		if _, ok := d.node.(*ast.TypeSpec); ok {
			types[named{d.file.folder.path, d.name}] = d
		}
	})
	for more := true; more; {
		more = false
		all.declarations(func(d *declaration) {
			if d.free && !d.stillFree(uses[named{d.file.folder.path, d.name}], types) {
				d.free, more = false, true
			}
		})
	}
}

func (all timed) declarations(do func(*declaration)) {
	for _, folder := range all {
		for _, file := range folder.files {
			for _, d := range file.decls {
				do(d)
			}
		}
	}
}

// stillFree reports whether, as far as known, only simulated code uses a declaration. A method that
// is never named implements an interface, and counts like its type.
func (d *declaration) stillFree(uses []mention, types map[named]*declaration) bool {
	if _, ok := d.node.(*ast.FuncDecl); ok && d.of == "" {
		if strings.HasPrefix(d.name, "Benchmark") {
			return true
		}
		for _, start := range []string{"Test", "Fuzz", "Example", "main", "init"} {
			if strings.HasPrefix(d.name, start) {
				return false
			}
		}
	}
	used := false
	for _, m := range uses {
		if m.method != (d.of != "") {
			continue
		}
		if used = true; !m.bubble && !m.in.free {
			return false
		}
	}
	if !used && d.of != "" {
		owner := types[named{d.file.folder.path, d.of}]
		return owner != nil && owner.free
	}
	return used
}

// mentions returns what a declaration uses.
func (d *declaration) mentions(tell func(named, mention)) {
	note := func(e ast.Expr) {
		method := false
		if s, ok := e.(*ast.SelectorExpr); ok {
			x, name := s.X.(*ast.Ident)
			method = !name || d.file.imports[x.Name] == ""
		}
		for _, n := range d.file.mayMean(e) {
			tell(n, mention{d, within(d.file.bubbles, e.Pos()), method})
		}
	}
	var visit func(ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			note(n)
			ast.Inspect(n.X, visit)
			return false
		case *ast.KeyValueExpr:
			if _, field := n.Key.(*ast.Ident); !field {
				ast.Inspect(n.Key, visit)
			}
			ast.Inspect(n.Value, visit)
			return false
		case *ast.Field:
			ast.Inspect(n.Type, visit)
			return false
		case *ast.Ident:
			_, local := d.locals[n.Name]
			if _, given := d.params[n.Name]; !local && !given {
				note(n)
			}
		}
		return true
	}
	switch n := d.node.(type) {
	case *ast.FuncDecl:
		ast.Inspect(n.Type, visit)
		if n.Body != nil {
			ast.Inspect(n.Body, visit)
		}
	case *ast.TypeSpec:
		ast.Inspect(n.Type, visit)
	case *ast.ValueSpec:
		if n.Type != nil {
			ast.Inspect(n.Type, visit)
		}
		for _, v := range n.Values {
			ast.Inspect(v, visit)
		}
	}
}

// simulated reports whether a place runs in simulated time.
func (d *declaration) simulated(at token.Pos) bool { return d.free || within(d.file.bubbles, at) }
