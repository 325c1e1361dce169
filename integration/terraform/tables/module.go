package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// module has the inputs and outputs of a module.
type module struct {
	inputs, outputs []value
}

type value struct {
	name, typ, fallback, description string
}

// read adds the variables and outputs of one file.
func (m *module) read(name string, text []byte) error {
	file, diags := hclsyntax.ParseConfig(text, name, hcl.InitialPos)
	if diags.HasErrors() {
		return diags
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return fmt.Errorf("%s: want Terraform's native syntax", name)
	}
	for _, block := range body.Blocks {
		if len(block.Labels) != 1 || block.Type != "variable" && block.Type != "output" {
			continue
		}
		one, err := read(block, text)
		if err != nil {
			return fmt.Errorf("%s: %s %s: %w", name, block.Type, block.Labels[0], err)
		}
		if block.Type == "variable" {
			m.inputs = append(m.inputs, one)
		} else {
			m.outputs = append(m.outputs, one)
		}
	}
	return nil
}

func read(block *hclsyntax.Block, text []byte) (value, error) {
	out := value{name: block.Labels[0]}
	for name, into := range map[string]*string{"type": &out.typ, "default": &out.fallback} {
		if attr, ok := block.Body.Attributes[name]; ok {
			*into = squeezed(attr.Expr.Range().SliceBytes(text))
		}
	}
	if block.Type == "variable" && out.typ == "" {
		return out, fmt.Errorf("type: want one")
	}
	attr, ok := block.Body.Attributes["description"]
	if !ok {
		return out, fmt.Errorf("description: want one")
	}
	description, diags := attr.Expr.Value(nil)
	if diags.HasErrors() {
		return out, diags
	}
	if description.Type() != cty.String || description.IsNull() || strings.TrimSpace(description.AsString()) == "" {
		return out, fmt.Errorf("description: want a text")
	}
	out.description = strings.Join(strings.Fields(description.AsString()), " ")
	return out, nil
}

// squeezed returns an expression in one line, without its comments.
func squeezed(text []byte) string {
	tokens, _ := hclsyntax.LexExpression(text, "", hcl.InitialPos) // it was parsed before
	var out strings.Builder
	last, broken, at := hclsyntax.TokenOBrace, false, 0
	for _, token := range tokens {
		switch token.Type {
		case hclsyntax.TokenComment, hclsyntax.TokenNewline:
			broken = true
			continue
		case hclsyntax.TokenEOF, hclsyntax.TokenComma:
			continue // a comma is written before what follows it
		default:
		}
		switch {
		case opens(last) || closes(token.Type):
		case broken || follows(text, at, token):
			out.WriteString(", ")
		case token.Range.Start.Byte > at:
			out.WriteString(" ")
		}
		out.Write(token.Bytes)
		last, broken, at = token.Type, false, token.Range.End.Byte
	}
	return out.String()
}

// follows reports whether a comma precedes a token.
func follows(text []byte, at int, token hclsyntax.Token) bool {
	return bytes.IndexByte(text[at:token.Range.Start.Byte], ',') >= 0
}

func opens(token hclsyntax.TokenType) bool {
	return token == hclsyntax.TokenOBrace || token == hclsyntax.TokenOBrack || token == hclsyntax.TokenOParen
}

func closes(token hclsyntax.TokenType) bool {
	return token == hclsyntax.TokenCBrace || token == hclsyntax.TokenCBrack || token == hclsyntax.TokenCParen
}

// tables returns both tables, sorted, required inputs first.
func (m *module) tables() string {
	slices.SortFunc(m.inputs, func(a, b value) int {
		return cmp.Or(cmp.Compare(needed(b), needed(a)), cmp.Compare(a.name, b.name))
	})
	slices.SortFunc(m.outputs, func(a, b value) int { return cmp.Compare(a.name, b.name) })
	var out strings.Builder
	out.WriteString("| input | type | default | what it is |\n| --- | --- | --- | --- |\n")
	for _, one := range m.inputs {
		fallback := "required"
		if one.fallback != "" {
			fallback = code(one.fallback)
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", one.name, code(one.typ), fallback, cell(one.description))
	}
	out.WriteString("\n| output | what it is |\n| --- | --- |\n")
	for _, one := range m.outputs {
		fmt.Fprintf(&out, "| `%s` | %s |\n", one.name, cell(one.description))
	}
	return out.String()
}

func needed(of value) int {
	if of.fallback == "" {
		return 1
	}
	return 0
}

func code(text string) string { return "`" + cell(text) + "`" }

// cell escapes a text for a cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
