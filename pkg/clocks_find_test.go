package pkg_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"time"
)

// leastBound is the minimum of a bound on real time: only a hang takes longer, whatever the load.
const leastBound = time.Minute

// finding is a place where real time decides whether a test passes.
type finding struct {
	key  string // the file and the function
	at   string
	what string
}

// finder finds them in a declaration.
type finder struct {
	all     timed
	d       *declaration
	parents []ast.Node
	found   []finding
	learned bool
}

// find returns the assertions of real times, ordered by file and line. Functions that get a bound
// as an argument are learned iteratively.
func (all timed) find() []finding {
	all.declarations((*declaration).findLocals)
	all.findFree()
	all.findMeasured()
	f := &finder{all: all, learned: true}
	for f.learned {
		f.learned, f.found = false, nil
		all.declarations(f.look)
	}
	slices.SortFunc(f.found, func(a, b finding) int { return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.at, b.at)) })
	return slices.Compact(f.found)
}

// look searches a declaration.
func (f *finder) look(d *declaration) {
	f.d, f.parents = d, nil
	ast.Inspect(d.node, func(n ast.Node) bool {
		if n == nil {
			f.parents = f.parents[:len(f.parents)-1]
			return true
		}
		if !d.simulated(n.Pos()) {
			f.node(n)
		}
		f.parents = append(f.parents, n)
		return true
	})
}

func (f *finder) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		f.comparison(n)
	case *ast.CallExpr:
		f.call(n)
	case *ast.CompositeLit:
		f.literal(n)
	}
}

// say records a finding.
func (f *finder) say(n ast.Node, format string, args ...any) {
	f.found = append(f.found, finding{f.d.key(), fmt.Sprintf("%s:%d", f.d.file.path, f.d.line(n)), fmt.Sprintf(format, args...)})
}

// bound checks the bound of a duration. If it is a parameter, the calls are checked instead.
func (f *finder) bound(n ast.Node, most ast.Expr, what string) {
	if p := f.d.parameter(most); p >= 0 {
		f.learn(p)
		return
	}
	if v, ok := f.all.value(f.d, most, 0); ok && v.time && v.n < float64(leastBound) {
		f.say(n, "%s %s", what, time.Duration(v.n))
	}
}

// learn records that a parameter of the declared function is a bound. Code that checks that nothing
// happens for a duration can't fail by being slow.
func (f *finder) learn(parameter int) {
	known := f.d.file.folder.bounded
	if strings.EqualFold(f.d.name, "consistently") || known[f.d.name][parameter] {
		return
	}
	if known[f.d.name] == nil {
		known[f.d.name] = map[int]bool{}
	}
	known[f.d.name][parameter], f.learned = true, true
}

// parameter returns which of the function's parameters the expression uses; -1: none.
func (d *declaration) parameter(e ast.Expr) int {
	found := -1
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if p, ok := d.params[id.Name]; ok {
				found = p
			}
		}
		return true
	})
	return found
}

// comparison checks a comparison with a measured time.
func (f *finder) comparison(n *ast.BinaryExpr) {
	op, took, most := n.Op, n.X, n.Y
	c := f.all.clocked(f.d, took)
	if c == noClock {
		op, took, most = mirrored(op), n.Y, n.X
		c = f.all.clocked(f.d, took)
	}
	if c == noClock || f.watches(n) {
		return
	}
	switch op {
	case token.LSS, token.LEQ:
		if when := f.condition(n); when != nil && fails(when.Body.List) {
			return // a minimum duration, which no load violates
		}
	case token.GTR, token.GEQ, token.EQL, token.NEQ:
		if when := f.condition(n); when != nil && when.Else == nil && !fails(when.Body.List) && !leaves(when.Body) {
			return // something is done after a time, and nothing else
		}
	default:
		return
	}
	if p := f.d.parameter(most); p >= 0 {
		f.learn(p)
		return
	}
	v, ok := f.all.value(f.d, most, 0)
	v.n *= f.d.scale(took)
	switch {
	case !ok && c == realClock:
		f.say(n, "compares a measured time")
	case ok && c == twoTimes && !v.time && f.d.scale(took) == 1, v.n >= float64(leastBound), !ok:
	default:
		f.say(n, "compares a measured time with %s", time.Duration(v.n))
	}
}

// mirrored returns the comparison with its sides swapped.
func mirrored(op token.Token) token.Token {
	switch op {
	case token.LSS:
		return token.GTR
	case token.LEQ:
		return token.GEQ
	case token.GTR:
		return token.LSS
	case token.GEQ:
		return token.LEQ
	default:
		return op
	}
}

// parent returns the nth node above the current one.
func (f *finder) parent(n int) ast.Node {
	if n >= len(f.parents) {
		return nil
	}
	return f.parents[len(f.parents)-1-n]
}

// condition returns the statement whose condition has the comparison; nil: there is none.
func (f *finder) condition(n ast.Node) *ast.IfStmt {
	for up := 0; ; up++ {
		switch p := f.parent(up).(type) {
		case *ast.ParenExpr:
		case *ast.BinaryExpr:
			if p.Op != token.LAND && p.Op != token.LOR {
				return nil
			}
		case *ast.IfStmt:
			if n.Pos() < p.Cond.Pos() || n.Pos() >= p.Cond.End() {
				return nil
			}
			return p
		default:
			return nil
		}
	}
}

// leaves reports whether the statements may end a loop, or the function.
func leaves(body *ast.BlockStmt) (yes bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.ReturnStmt, *ast.BranchStmt:
			yes = true
		}
		return !yes
	})
	return yes
}

// watches reports whether the condition is that of a loop after which nothing fails: then the time
// is how long something is observed.
func (f *finder) watches(n ast.Node) bool {
	for up := 0; f.parent(up) != nil; up++ {
		loop, ok := f.parent(up).(*ast.ForStmt)
		if !ok {
			continue
		}
		if loop.Cond == nil || n.Pos() < loop.Cond.Pos() || n.Pos() >= loop.Cond.End() {
			return false
		}
		around, _ := f.parent(up + 1).(*ast.BlockStmt)
		if around == nil {
			return false
		}
		after := slices.IndexFunc(around.List, func(s ast.Stmt) bool { return s == ast.Stmt(loop) }) + 1
		return !fails(around.List[after:min(after+1, len(around.List))])
	}
	return false
}

// fails reports whether the statements make a test fail, or return what may be an error.
func fails(all []ast.Stmt) (yes bool) {
	for _, s := range all {
		ast.Inspect(s, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ReturnStmt:
				for _, r := range n.Results {
					yes = yes || mayBeError(r)
				}
			case *ast.CallExpr:
				name := qualified(n.Fun)
				name = name[strings.LastIndex(name, ".")+1:]
				switch name {
				case "Fatal", "Fatalf", "Error", "Errorf", "panic":
					yes = yes || len(n.Args) > 0
				case "Fail", "FailNow":
					yes = true
				}
			}
			return !yes
		})
	}
	return yes
}

// mayBeError reports whether the result is neither nil nor a value that was found.
func mayBeError(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return !ok || id.Name == "false" || strings.HasPrefix(strings.ToLower(id.Name), "err")
}

// call checks a call with a bound.
func (f *finder) call(n *ast.CallExpr) {
	name := qualified(n.Fun)
	short := name[strings.LastIndex(name, ".")+1:]
	if s, ok := n.Fun.(*ast.SelectorExpr); ok {
		short = s.Sel.Name
	}
	if at, ok := map[string]int{"context.WithTimeout": 1, "context.WithTimeoutCause": 1, "time.NewTimer": 0, "net.DialTimeout": 2}[name]; ok {
		f.bound(n, n.Args[at], name)
		return
	}
	switch name {
	case "time.After":
		if !f.pauses() {
			f.bound(n, n.Args[0], name)
		}
		return
	case "time.AfterFunc":
		if lit, ok := n.Args[1].(*ast.FuncLit); ok && fails(lit.Body.List) {
			f.bound(n, n.Args[0], name)
		}
		return
	case "context.WithDeadline", "context.WithDeadlineCause":
		f.deadline(n, n.Args[1], name)
		return
	}
	switch short {
	case "SetDeadline", "SetReadDeadline", "SetWriteDeadline":
		f.deadline(n, n.Args[0], short)
	case "After", "Before":
		if s, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) == 1 {
			f.isOver(n, s)
		}
	default:
		f.helper(n, short)
	}
}

// isOver checks time.Now().After(deadline) and the like.
func (f *finder) isOver(n *ast.CallExpr, s *ast.SelectorExpr) {
	deadline := n.Args[0]
	if isNow(deadline) {
		deadline = s.X
	} else if !isNow(s.X) {
		return
	}
	if !f.watches(n) {
		f.deadline(n, deadline, "a deadline of")
	}
}

func isNow(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && qualified(call.Fun) == "time.Now"
}

// deadline checks a point in time: it is a bound if it is now plus something.
func (f *finder) deadline(n ast.Node, e ast.Expr, what string) {
	if id, ok := e.(*ast.Ident); ok {
		for _, given := range f.d.locals[id.Name] {
			if given != nil && given != e {
				e = given
			}
		}
	}
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return
	}
	if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Add" && isNow(s.X) {
		f.bound(n, call.Args[0], what)
	}
}

// pauses reports whether the time is a pause, or one in which nothing may happen: what follows it
// does not fail.
func (f *finder) pauses() bool {
	if u, ok := f.parent(0).(*ast.UnaryExpr); !ok || u.Op != token.ARROW {
		return false
	}
	statement, ok := f.parent(1).(*ast.ExprStmt)
	if !ok {
		return false
	}
	clause, ok := f.parent(2).(*ast.CommClause)
	if !ok || clause.Comm != ast.Stmt(statement) {
		return true
	}
	always := slices.DeleteFunc(slices.Clone(clause.Body), func(s ast.Stmt) bool { _, ok := s.(*ast.IfStmt); return ok })
	return !fails(always)
}

// helper checks a call of a function with a bound parameter: one that is known, or has a name like
// those.
func (f *finder) helper(n *ast.CallExpr, short string) {
	for _, to := range f.d.file.mayMean(n.Fun) {
		of := f.all[to.folder]
		if of == nil {
			continue
		}
		for at := range of.bounded[to.name] {
			if at < len(n.Args) {
				f.bound(n, n.Args[at], to.name)
			}
		}
	}
	lower := strings.ToLower(short)
	for _, word := range []string{"eventually", "await", "waitfor", "within"} {
		if strings.Contains(lower, word) {
			for _, a := range n.Args {
				if _, function := a.(*ast.FuncLit); !function {
					f.bound(n, a, short)
				}
			}
			return
		}
	}
}

// literal checks settings for the duration of a wait.
func (f *finder) literal(n *ast.CompositeLit) {
	kind := ""
	if n.Type != nil {
		kind = qualified(n.Type)
	}
	for _, e := range n.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key := qualified(pair.Key); {
		case key == "Patience" || key == "patience", key == "Timeout" && (kind == "http.Client" || kind == "net.Dialer"):
			f.bound(pair, pair.Value, key)
		}
	}
}
