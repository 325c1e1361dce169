package pkg_test

import (
	"go/ast"
	"go/constant"
	"go/token"
	"strings"
	"time"
)

// unit returns the value of a unit of package time, in nanoseconds.
func unit(name string) (float64, bool) {
	d, ok := map[string]time.Duration{
		"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second,
		"Minute": time.Minute, "Hour": time.Hour,
	}[name]
	return float64(d), ok
}

// amount is the value of an expression. A time, in nanoseconds, has a unit somewhere.
type amount struct {
	n    float64
	time bool
}

// value computes an expression of constants, and of variables with constant values: the minimum if
// there are several.
func (all timed) value(d *declaration, e ast.Expr, depth int) (amount, bool) {
	if depth > 8 {
		return amount{}, false
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		v := constant.ToFloat(constant.MakeFromLiteral(e.Value, e.Kind, 0))
		n, _ := constant.Float64Val(v)
		return amount{n: n}, v.Kind() == constant.Float
	case *ast.ParenExpr:
		return all.value(d, e.X, depth)
	case *ast.UnaryExpr:
		v, ok := all.value(d, e.X, depth)
		v.n = -v.n
		return v, ok && e.Op == token.SUB
	case *ast.BinaryExpr:
		return all.computed(d, e, depth)
	case *ast.CallExpr:
		if f := qualified(e.Fun); len(e.Args) > 0 && (f == "time.Duration" || f == "max" || f == "min") {
			return all.value(d, e.Args[0], depth)
		}
	case *ast.Ident:
		if _, ok := d.params[e.Name]; ok {
			return amount{}, false
		}
		if given, ok := d.locals[e.Name]; ok {
			return all.least(d, given, depth)
		}
		return all.least(d, d.file.folder.values[named{d.file.pkg, e.Name}], depth)
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		if !ok {
			return amount{}, false
		}
		if u, ok := unit(e.Sel.Name); ok && x.Name == "time" {
			return amount{u, true}, true
		}
		if of := all[d.file.imports[x.Name]]; of != nil {
			return all.least(d, of.values[named{of.name, e.Sel.Name}], depth)
		}
	}
	return amount{}, false
}

// computed returns the value of a sum, a difference, a product or a quotient.
func (all timed) computed(d *declaration, e *ast.BinaryExpr, depth int) (amount, bool) {
	x, xOK := all.value(d, e.X, depth)
	y, yOK := all.value(d, e.Y, depth)
	if !xOK || !yOK {
		return amount{}, false
	}
	out := amount{time: x.time || y.time}
	switch e.Op {
	case token.ADD:
		out.n = x.n + y.n
	case token.SUB:
		out.n = x.n - y.n
	case token.MUL:
		out.n = x.n * y.n
	case token.QUO:
		out.n = x.n / max(y.n, 1e-9)
	default:
		return out, false
	}
	return out, true
}

func (all timed) least(d *declaration, given []ast.Expr, depth int) (least amount, ok bool) {
	for n, e := range given {
		if e == nil {
			return amount{}, false
		}
		v, known := all.value(d, e, depth+1)
		if !known {
			return amount{}, false
		}
		if n == 0 || v.n < least.n {
			least = v
		}
	}
	return least, len(given) > 0
}

// clock is the source of a measured time.
type clock int

const (
	noClock   clock = iota
	twoTimes        // a difference of times: of a real clock, of a log, or artificial
	realClock       // time.Since
)

// clocked reports whether the expression is a measured time. One that is measured in simulated time
// is not.
func (all timed) clocked(d *declaration, e ast.Expr) clock {
	if d.simulated(e.Pos()) {
		return noClock
	}
	switch e := e.(type) {
	case *ast.Ident:
		return d.elapsed[e.Name]
	case *ast.ParenExpr:
		return all.clocked(d, e.X)
	case *ast.StarExpr:
		return all.clocked(d, e.X)
	case *ast.IndexExpr:
		return all.clocked(d, e.X)
	case *ast.SliceExpr:
		return all.clocked(d, e.X)
	case *ast.UnaryExpr:
		if call, ok := e.X.(*ast.CallExpr); ok && e.Op == token.SUB && qualified(call.Fun) == "time.Until" {
			return realClock
		}
		return all.clocked(d, e.X)
	case *ast.SelectorExpr:
		return d.file.folder.fields[e.Sel.Name]
	case *ast.BinaryExpr:
		switch e.Op {
		case token.ADD, token.SUB, token.MUL, token.QUO:
			return max(all.clocked(d, e.X), all.clocked(d, e.Y))
		default:
		}
	case *ast.CallExpr:
		return all.clockedCall(d, e)
	}
	return noClock
}

func (all timed) clockedCall(d *declaration, call *ast.CallExpr) (out clock) {
	name := qualified(call.Fun)
	switch name {
	case "time.Since":
		return realClock
	case "append", "max", "min", "float64", "int", "int64", "time.Duration", "slices.Max", "slices.Min", "slices.Sorted":
		for _, a := range call.Args {
			out = max(out, all.clocked(d, a))
		}
		return out
	}
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		switch s.Sel.Name {
		case "Sub":
			if len(call.Args) == 1 {
				return twoTimes
			}
		case "Round", "Truncate", "Abs", "Hours", "Minutes", "Seconds", "Milliseconds", "Microseconds", "Nanoseconds":
			return all.clocked(d, s.X)
		}
	}
	return all.result(d, call, 0)
}

// result returns what is known of a function's nth result.
func (all timed) result(d *declaration, call *ast.CallExpr, n int) (out clock) {
	for _, f := range d.file.mayMean(call.Fun) {
		if of := all[f.folder]; of != nil {
			out = max(out, of.measured[f.name][n])
		}
	}
	return out
}

// scale returns the unit of one of the expression's numbers, in nanoseconds: took.Seconds(), or a
// variable with such a value, is in seconds.
func (d *declaration) scale(e ast.Expr) float64 {
	if id, ok := e.(*ast.Ident); ok && len(d.locals[id.Name]) > 0 {
		e = d.locals[id.Name][0]
	}
	if call, ok := e.(*ast.CallExpr); ok {
		if s, ok := call.Fun.(*ast.SelectorExpr); ok {
			if u, ok := unit(strings.TrimSuffix(s.Sel.Name, "s")); ok {
				return u
			}
		}
	}
	return 1
}

// findMeasured finds the variables, fields, channels and results that are measured times.
func (all timed) findMeasured() {
	for range 3 { // from function to function
		all.declarations(func(d *declaration) { all.findElapsed(d) })
	}
}

// findLocals collects the values of a function's variables and constants; nil: unknown.
func (d *declaration) findLocals() {
	f, ok := d.node.(*ast.FuncDecl)
	if !ok {
		return
	}
	given := func(to ast.Expr, e ast.Expr) {
		if id, ok := to.(*ast.Ident); ok && id.Name != "_" {
			d.locals[id.Name] = append(d.locals[id.Name], e)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if len(n.Lhs) == len(n.Rhs) && (n.Tok == token.DEFINE || n.Tok == token.ASSIGN) {
					given(to, n.Rhs[i])
				} else {
					given(to, nil)
				}
			}
		case *ast.RangeStmt:
			given(n.Key, nil)
			given(n.Value, nil)
		case *ast.FuncLit:
			for _, field := range n.Type.Params.List {
				for _, name := range field.Names {
					given(name, nil)
				}
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if len(n.Values) == len(n.Names) {
					given(name, n.Values[i])
				} else {
					given(name, nil)
				}
			}
		}
		return true
	})
}

// findElapsed finds the variables of a declaration that get measured times.
func (all timed) findElapsed(d *declaration) {
	gives := func(to ast.Expr, c clock) {
		if c == noClock {
			return
		}
		switch to := to.(type) {
		case *ast.Ident:
			d.elapsed[to.Name] = max(d.elapsed[to.Name], c)
		case *ast.IndexExpr:
			if id, ok := to.X.(*ast.Ident); ok {
				d.elapsed[id.Name] = max(d.elapsed[id.Name], c)
			}
		case *ast.SelectorExpr:
			fields := d.file.folder.fields
			fields[to.Sel.Name] = max(fields[to.Sel.Name], c)
		}
	}
	ast.Inspect(d.node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if len(n.Lhs) == len(n.Rhs) {
					gives(to, all.clocked(d, n.Rhs[i]))
					all.literal(d, to, n.Rhs[i])
				} else if call, ok := n.Rhs[0].(*ast.CallExpr); ok {
					gives(to, all.result(d, call, i))
				}
			}
		case *ast.RangeStmt:
			if n.Value != nil {
				gives(n.Value, all.clocked(d, n.X))
			}
		case *ast.SendStmt:
			gives(n.Chan, all.clocked(d, n.Value))
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok {
				gives(&ast.SelectorExpr{X: key, Sel: key}, all.clocked(d, n.Value))
			}
		}
		return true
	})
	if f, ok := d.node.(*ast.FuncDecl); ok && f.Body != nil {
		all.returned(d, d.name, f.Type, f.Body)
	}
}

// literal records the results of a function literal that is assigned to a variable.
func (all timed) literal(d *declaration, to, e ast.Expr) {
	id, named := to.(*ast.Ident)
	if lit, ok := e.(*ast.FuncLit); ok && named {
		all.returned(d, id.Name, lit.Type, lit.Body)
	}
}

// returned records the results of a function that are measured times.
func (all timed) returned(d *declaration, name string, kind *ast.FuncType, body *ast.BlockStmt) {
	if kind.Results == nil {
		return
	}
	var names []string
	for _, field := range kind.Results.List {
		for _, n := range field.Names {
			names = append(names, n.Name)
		}
	}
	note := func(n int, c clock) {
		if c == noClock {
			return
		}
		known := d.file.folder.measured
		if known[name] == nil {
			known[name] = map[int]clock{}
		}
		known[name][n] = max(known[name][n], c)
	}
	for n, result := range names {
		note(n, d.elapsed[result])
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			for i, e := range n.Results {
				note(i, all.clocked(d, e))
			}
		}
		return true
	})
}
