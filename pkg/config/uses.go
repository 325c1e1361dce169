package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// fact names a fact, as Instance and ID; without a name, all facts of the group.
type fact struct{ group, name string }

// uses are the facts that templates use.
type uses struct {
	facts map[fact]bool
	all   bool // a template may use any fact
}

func newUses() uses { return uses{facts: map[fact]bool{}} }

// usesOf collects the facts that the strings in v use, at any depth. A template that does not parse is
// never rendered.
func (t *Templates) usesOf(v any, into *uses) {
	for _, leaf := range leaves("", v) {
		if text, ok := leaf.(string); ok {
			t.usesIn(text, into)
		}
	}
}

func (t *Templates) usesIn(text string, into *uses) {
	if !strings.Contains(text, "{{") {
		return
	}
	if p, err := t.parse(text); err == nil {
		maps.Copy(into.facts, p.uses.facts)
		into.all = into.all || p.uses.all
	}
}

// usesBy returns what one template uses.
func usesBy(t *template.Template) uses {
	u := newUses()
	if t.Tree == nil {
		return u
	}
	done := map[parse.Node]bool{} // handled together with their name
	walkTemplate(t.Root, true, func(n parse.Node, root bool) {
		if command, ok := n.(*parse.CommandNode); ok {
			if field, f, ok := factByName(command); ok && (root || isVariable(field)) {
				u.facts[f] = true
				done[field] = true
			}
			return
		}
		if !done[n] {
			u.node(n, root)
		}
	})
	return u
}

// node collects from one node; root tells whether the dot is the facts.
func (u *uses) node(n parse.Node, root bool) {
	switch n := n.(type) {
	case *parse.FieldNode:
		if root {
			u.path(n.Ident)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			u.path(n.Ident[1:])
		}
	case *parse.DotNode:
		u.all = u.all || root
	}
}

// path collects from the path of a fact.
func (u *uses) path(path []string) {
	switch len(path) {
	case 0:
		u.all = true
	case 1:
		u.facts[fact{group: path[0]}] = true
	default:
		u.facts[fact{path[0], path[1]}] = true
	}
}

// factByName returns the fact in: index .Image "name", and has .Image "name".
func factByName(n *parse.CommandNode) (field parse.Node, f fact, ok bool) {
	if len(n.Args) < 3 {
		return nil, fact{}, false
	}
	fn, isFunc := n.Args[0].(*parse.IdentifierNode)
	text, isText := n.Args[2].(*parse.StringNode)
	if !isFunc || !isText || (fn.Ident != "index" && fn.Ident != "has") {
		return nil, fact{}, false
	}
	switch of := n.Args[1].(type) {
	case *parse.FieldNode:
		return of, fact{of.Ident[0], text.Text}, len(of.Ident) == 1
	case *parse.VariableNode:
		if len(of.Ident) == 2 && of.Ident[0] == "$" {
			return of, fact{of.Ident[1], text.Text}, true
		}
	}
	return nil, fact{}, false
}

func isVariable(n parse.Node) bool {
	_, ok := n.(*parse.VariableNode)
	return ok
}

// Difference is how the facts of two renderings differ.
type Difference struct {
	templates *Templates
	facts     map[fact]bool // those that differ, and their groups
}

// Since returns how the facts differ from those before.
func (s Values) Since(before Facts) Difference {
	d := Difference{s.templates, map[fact]bool{}}
	was, is := before.groups(), s.facts.groups()
	for group := range is {
		compareFacts(d, group, was[group], is[group])
	}
	compareFacts(d, "Image", before.Image, s.facts.Image)
	compareFacts(d, "Vars", before.Vars, s.facts.Vars)
	return d
}

func compareFacts[V any](d Difference, group string, was, is map[string]V) {
	for _, side := range []map[string]V{was, is} {
		for name := range side {
			old, had := was[name]
			value, has := is[name]
			if had != has || !reflect.DeepEqual(old, value) {
				d.facts[fact{group, name}], d.facts[fact{group: group}] = true, true
			}
		}
	}
}

// Affects reports whether the strings in v may be rendered differently, because they use a fact that
// differs. It does not consider the nonce.
func (d Difference) Affects(v any) bool {
	if len(d.facts) == 0 {
		return false
	}
	switch v := v.(type) {
	case string:
		return d.affects(v)
	case map[string]any:
		for _, item := range v {
			if d.Affects(item) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, d.Affects)
	}
	return false
}

func (d Difference) affects(text string) bool {
	if !strings.Contains(text, "{{") {
		return false
	}
	p, err := d.templates.parse(text)
	if err != nil {
		return true // it fails in any case
	}
	for f := range d.facts {
		if p.uses.facts[f] {
			return true
		}
	}
	return p.uses.all
}
