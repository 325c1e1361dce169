// Package catalog describes the types of the provider hashicorp/aws that the modules use,
// in Terraform's own language: the files aws/*.hcl beside this one.
//
// A type has its attributes in sections that say who sets them, and its nested blocks:
//
//	resource "aws_example" {
//	  region = true                     # has the attribute region, as most have since 6.0
//	  tags   = "settled"                # has tags and tags_all: "settled", or "computed"
//	  required  { name = string }
//	  optional  { size = number }
//	  settled   { id = string }         # optional and computed: set by AWS where it is not given
//	  computed  { arn = string }        # set by AWS
//	  write_only { password_wo = string }
//	  sensitive = ["password_wo"]
//	  changes   = ["revision"]          # computed, and another one after each update
//	  force_new = ["name", "rule"]      # attributes and blocks whose change replaces the resource
//	  grows     = ["subnets"]           # sets that lose an element only if the resource is replaced
//	  values { id = "ex-${hex(17)}" }   # what is computed, in the order of evaluation
//	  block "rule" {
//	    nesting = "list"                # "list", "set" or "single"
//	    max     = 1
//	    optional { ... }
//	  }
//	}
//
// What has no value is empty or zero once it is made.
package catalog

import (
	"embed"
	"fmt"
	"path"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/zclconf/go-cty/cty"
)

//go:embed aws/*.hcl
var files embed.FS

// Attribute is one attribute of a type or of a block in it.
type Attribute struct {
	Name                                               string
	Type                                               cty.Type
	Required, Optional, Computed, WriteOnly, Sensitive bool
}

// Block is the content of a block. Attributes and blocks are sorted by name.
type Block struct {
	Attributes []Attribute
	Blocks     []Nested
}

// Nested is a block in a block. Max 0 means no limit.
type Nested struct {
	Name     string
	Nesting  Nesting
	Min, Max int64
	Block    Block
}

// Nesting is how often a block may occur, and whether its order matters.
type Nesting string

// The nestings.
const (
	List   Nesting = "list"
	Set    Nesting = "set"
	Single Nesting = "single"
)

// Value is how a computed attribute is set.
type Value struct {
	Name string
	Expr hcl.Expression
}

// Kind is a type of resource, data source or ephemeral resource.
type Kind struct {
	Block
	Values   []Value  // in the order of evaluation
	Changes  []string // unknown while an update is planned
	ForceNew []string // can't be changed: the resource is replaced
	Grows    []string // sets whose elements can't be removed without a replacement
	Tagged   bool     // tags_all is derived from tags
}

// Types has all types by name, and the provider's own configuration.
type Types struct {
	Provider                   Block
	Resources, Data, Ephemeral map[string]Kind
}

// Load reads the files.
func Load() (Types, error) {
	types := Types{Resources: map[string]Kind{}, Data: map[string]Kind{}, Ephemeral: map[string]Kind{}}
	entries, err := files.ReadDir("aws")
	if err != nil {
		return types, err
	}
	for _, entry := range entries {
		text, err := files.ReadFile(path.Join("aws", entry.Name()))
		if err != nil {
			return types, err
		}
		if err := types.read(entry.Name(), text); err != nil {
			return types, err
		}
	}
	return types, nil
}

// read adds the types of one file.
func (t *Types) read(name string, text []byte) error {
	file, diags := hclparse.NewParser().ParseHCL(text, name)
	if diags.HasErrors() {
		return diags
	}
	var body fileBody
	if diags := gohcl.DecodeBody(file.Body, nil, &body); diags.HasErrors() {
		return diags
	}
	if body.Provider != nil {
		block, err := body.Provider.block()
		if err != nil {
			return fmt.Errorf("%s: provider: %w", name, err)
		}
		t.Provider = block
	}
	for _, part := range []struct {
		into  map[string]Kind
		kinds []blockBody
	}{{t.Resources, body.Resources}, {t.Data, body.Data}, {t.Ephemeral, body.Ephemeral}} {
		if err := add(part.into, part.kinds); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func add(into map[string]Kind, kinds []blockBody) error {
	for i := range kinds {
		name := kinds[i].Name
		kind, err := kinds[i].kind()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, twice := into[name]; twice {
			return fmt.Errorf("%s is there twice", name)
		}
		into[name] = kind
	}
	return nil
}

// Type is the type of a block's values.
func (b Block) Type() cty.Type {
	of := map[string]cty.Type{}
	for _, attr := range b.Attributes {
		of[attr.Name] = attr.Type
	}
	for _, nested := range b.Blocks {
		switch inner := nested.Block.Type(); nested.Nesting {
		case Set:
			of[nested.Name] = cty.Set(inner)
		case Single:
			of[nested.Name] = inner
		default:
			of[nested.Name] = cty.List(inner)
		}
	}
	return cty.Object(of)
}

// Attribute finds an attribute by its name.
func (b Block) Attribute(name string) (Attribute, bool) {
	i := slices.IndexFunc(b.Attributes, func(a Attribute) bool { return a.Name == name })
	if i < 0 {
		return Attribute{}, false
	}
	return b.Attributes[i], true
}
