package config

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// maxTemplateSize is the longest template text, in bytes.
const maxTemplateSize = 256 << 10

const templateName = "text"

// parseTemplate parses a template and bounds its execution: templates can't call each other, and
// each loop iteration writes, so that the writer can count iterations without output.
func parseTemplate(text string) (*template.Template, error) {
	if len(text) > maxTemplateSize {
		return nil, fmt.Errorf("the template has %d bytes: at most %d are allowed", len(text), maxTemplateSize)
	}
	t, err := template.New(templateName).Option("missingkey=error").Funcs(templateFuncs()).Parse(text)
	if err != nil {
		return nil, errors.New(tidyTemplateError(err))
	}
	if len(t.Templates()) > 1 {
		return nil, errors.New("define and block can't be used here: write the text out")
	}
	if t.Tree == nil {
		return t, nil
	}
	var refused error
	walkTemplate(t.Root, true, func(n parse.Node, _ bool) {
		switch n := n.(type) {
		case *parse.TemplateNode:
			refused = errors.New("template and block can't be used here: write the text out")
		case *parse.RangeNode:
			tick := &parse.TextNode{NodeType: parse.NodeText, Pos: n.Pos}
			n.List.Nodes = slices.Insert(n.List.Nodes, 0, parse.Node(tick))
		}
	})
	return t, refused
}

// tidyTemplateError removes the template's name from an error and keeps the line.
func tidyTemplateError(err error) string {
	s := strings.TrimPrefix(err.Error(), "template: "+templateName+":")
	s = strings.Replace(s, "executing \""+templateName+"\" ", "", 1)
	return fmt.Sprintf("template line %.300s", s)
}

// walkTemplate visits every node below n. root tells whether the dot is the facts, rather than
// set by a with or a range.
func walkTemplate(n parse.Node, root bool, visit func(n parse.Node, root bool)) {
	if n == nil || reflect.ValueOf(n).IsNil() {
		return
	}
	visit(n, root)
	switch n := n.(type) {
	case *parse.ListNode:
		for _, child := range n.Nodes {
			walkTemplate(child, root, visit)
		}
	case *parse.ActionNode:
		walkTemplate(n.Pipe, root, visit)
	case *parse.IfNode:
		walkBranch(n.BranchNode, root, root, visit)
	case *parse.WithNode:
		walkBranch(n.BranchNode, root, false, visit)
	case *parse.RangeNode:
		walkBranch(n.BranchNode, root, false, visit)
	case *parse.PipeNode:
		for _, cmd := range n.Cmds {
			walkTemplate(cmd, root, visit)
		}
	case *parse.CommandNode:
		for _, arg := range n.Args {
			walkTemplate(arg, root, visit)
		}
	case *parse.ChainNode:
		walkTemplate(n.Node, root, visit)
	}
}

func walkBranch(n parse.BranchNode, root, inside bool, visit func(parse.Node, bool)) {
	walkTemplate(n.Pipe, root, visit)
	walkTemplate(n.List, inside, visit)
	walkTemplate(n.ElseList, root, visit)
}

// templateScope is what is known of the facts before rendering.
type templateScope struct {
	images map[string]Image
	nonce  bool // .Nonce is available
}

// check parses text and checks the facts that it uses. Vars are not checked before rendering: an
// API call may add some.
func (s templateScope) check(text string) []string {
	if !strings.Contains(text, "{{") {
		return nil
	}
	t, err := parseTemplate(text)
	if err != nil {
		return []string{err.Error()}
	}
	if t.Tree == nil {
		return nil
	}
	var wrong []string
	add := func(message string) {
		if message != "" && !slices.Contains(wrong, message) {
			wrong = append(wrong, message)
		}
	}
	walkTemplate(t.Root, true, func(n parse.Node, root bool) {
		switch n := n.(type) {
		case *parse.FieldNode:
			if root {
				add(s.fact(n.Ident))
			}
		case *parse.VariableNode:
			if n.Ident[0] == "$" && len(n.Ident) > 1 {
				add(s.fact(n.Ident[1:]))
			}
		case *parse.CommandNode:
			add(s.indexed(n, root))
		}
	})
	return wrong
}

// fact returns what is wrong with using the fact with the given path; empty if nothing.
func (s templateScope) fact(path []string) string {
	known := Facts{}.groups()
	switch {
	case path[0] == "Image" && len(path) > 1:
		return s.image(path[1])
	case path[0] == "Vars", path[0] == "Image", path[0] == "Nonce" && s.nonce:
		return ""
	case path[0] == "Nonce":
		return ".Nonce can only be used in userdata"
	}
	fields, ok := known[path[0]]
	if !ok {
		return fmt.Sprintf("no such fact .%s (have: %s, Image, Vars, Nonce in userdata)", path[0], strings.Join(sortedKeys(known), ", "))
	}
	if len(path) == 1 {
		return ""
	}
	if _, ok := fields[path[1]]; !ok {
		return fmt.Sprintf("no such fact .%s.%s %s", path[0], path[1], have(fields))
	}
	return ""
}

func (s templateScope) image(name string) string {
	if _, ok := s.images[name]; ok {
		return ""
	}
	return fmt.Sprintf("no such image %.80q %s", name, have(s.images))
}

// indexed checks index .Image "name", which names that are not identifiers need.
func (s templateScope) indexed(n *parse.CommandNode, root bool) string {
	field, f, ok := factByName(n)
	if ok && f.group == "Image" && root && !isVariable(field) && n.Args[0].String() == "index" {
		return s.image(f.name)
	}
	return ""
}

// templateFuncs are the functions in addition to those of text/template:
//
//	json V      V as JSON on one line
//	base64 S    S in standard base64
//	quote S     S as one word of a POSIX shell
//	has M K...  whether object M has key K, and its value has the next, ...
//	index V K   as built in, but a missing key is an error here as well
func templateFuncs() template.FuncMap {
	return template.FuncMap{
		"json": func(v any) (string, error) {
			data, err := json.Marshal(v)
			return string(data), err
		},
		"base64": func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"quote":  func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" },
		"has": func(v any, keys ...any) bool {
			_, err := lookUp(v, keys)
			return err == nil
		},
		"index": func(v any, keys ...any) (any, error) { return lookUp(v, keys) },
	}
}

func lookUp(v any, keys []any) (any, error) {
	for _, key := range keys {
		next, err := lookUpOne(v, key)
		if err != nil {
			return nil, err
		}
		v = next
	}
	return v, nil
}

func lookUpOne(v, key any) (any, error) {
	switch item := reflect.ValueOf(v); item.Kind() {
	case reflect.Map:
		if name, ok := key.(string); ok {
			if found := item.MapIndex(reflect.ValueOf(name)); found.IsValid() {
				return found.Interface(), nil
			}
		}
		return nil, fmt.Errorf("no entry for key %.80q", fmt.Sprint(key))
	case reflect.Slice:
		n := reflect.ValueOf(key)
		if !n.CanInt() || n.Int() < 0 || n.Int() >= int64(item.Len()) {
			return nil, fmt.Errorf("no element %.80s in a list of %d", fmt.Sprint(key), item.Len())
		}
		return item.Index(int(n.Int())).Interface(), nil
	default:
		return nil, fmt.Errorf("a value of type %T has no entries", v)
	}
}
