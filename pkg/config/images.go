package config

import (
	"slices"
	"strings"
	"text/template/parse"

	"github.com/nstance/nstance/pkg/fleet"
)

// ImagesOf returns the sorted names of the images that a group's args, userdata, files and
// their certificates use. A template that computes the name of an image uses all of them.
// Images that the group's tenant may not use are left out.
func (s *Shard) ImagesOf(g fleet.Group) []string {
	u := imageUse{names: map[string]bool{}}
	u.value(g.Args)
	u.text(g.Userdata.Content)
	for _, file := range g.Files {
		u.text(file.Source)
		u.value(file.Content)
		u.value(file.Values)
		if c, ok := s.Certificates[file.Template]; ok && file.Kind == fileCertificate {
			for _, text := range slices.Concat([]string{c.CN}, c.Organization, c.DNS, c.IP, c.URI) {
				u.text(text)
			}
		}
	}
	var used []string
	for _, name := range sortedKeys(s.Images) {
		if (u.all || u.names[name]) && s.Images[name].Tenants.Allow(g.Key.Tenant) {
			used = append(used, name)
		}
	}
	return used
}

// imagesIn returns the sorted names of the images that appear literally in a template. Computed
// names are known only when it is rendered.
func imagesIn(text string) []string {
	if !strings.Contains(text, "{{") {
		return nil
	}
	u := imageUse{names: map[string]bool{}}
	u.text(text)
	return sortedKeys(u.names)
}

// imageUse collects the images that templates use.
type imageUse struct {
	names map[string]bool
	all   bool // a template may use any image
}

func (u *imageUse) value(v any) {
	for _, leaf := range leaves("", v) {
		if text, ok := leaf.(string); ok {
			u.text(text)
		}
	}
}

// text collects from one template. A template that does not parse is never rendered.
func (u *imageUse) text(text string) {
	if !strings.Contains(text, "{{") {
		return
	}
	t, err := parseTemplate(text)
	if err != nil || t.Tree == nil {
		return
	}
	done := map[parse.Node]bool{} // handled together with their name
	walkTemplate(t.Root, true, func(n parse.Node, root bool) {
		if command, ok := n.(*parse.CommandNode); ok {
			if field, name, ok := imageByName(command); ok && (root || isVariable(field)) {
				u.names[name] = true
				done[field] = true
			}
			return
		}
		if !done[n] {
			u.node(n, root)
		}
	})
}

// node collects from one node; root tells whether the dot is the facts.
func (u *imageUse) node(n parse.Node, root bool) {
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
func (u *imageUse) path(path []string) {
	switch {
	case len(path) == 0, len(path) == 1 && path[0] == "Image":
		u.all = true
	case path[0] == "Image":
		u.names[path[1]] = true
	}
}

// imageByName returns the name in: index .Image "name", and has .Image "name".
func imageByName(n *parse.CommandNode) (field parse.Node, name string, ok bool) {
	if len(n.Args) != 3 {
		return nil, "", false
	}
	fn, isFunc := n.Args[0].(*parse.IdentifierNode)
	text, isText := n.Args[2].(*parse.StringNode)
	if !isFunc || !isText || (fn.Ident != "index" && fn.Ident != "has") {
		return nil, "", false
	}
	switch f := n.Args[1].(type) {
	case *parse.FieldNode:
		return f, text.Text, slices.Equal(f.Ident, []string{"Image"})
	case *parse.VariableNode:
		return f, text.Text, slices.Equal(f.Ident, []string{"$", "Image"})
	default:
		return nil, "", false
	}
}

func isVariable(n parse.Node) bool {
	_, ok := n.(*parse.VariableNode)
	return ok
}
