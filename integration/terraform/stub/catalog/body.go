package catalog

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
)

// fileBody is the body of a file.
type fileBody struct {
	Provider  *providerBody `hcl:"provider,block"`
	Resources []blockBody   `hcl:"resource,block"`
	Data      []blockBody   `hcl:"data,block"`
	Ephemeral []blockBody   `hcl:"ephemeral,block"`
}

// providerBody is a block without a name.
type providerBody struct {
	Optional *section    `hcl:"optional,block"`
	Blocks   []blockBody `hcl:"block,block"`
}

func (p *providerBody) block() (Block, error) {
	return (&blockBody{Optional: p.Optional, Blocks: p.Blocks}).block()
}

// section is a list of attributes, whose expressions are types, or values.
type section struct {
	Body hcl.Body `hcl:",remain"`
}

// blockBody is the body of a type or of a nested block.
type blockBody struct {
	Name      string      `hcl:"name,label"`
	Nesting   Nesting     `hcl:"nesting,optional"`
	Min       int64       `hcl:"min,optional"`
	Max       int64       `hcl:"max,optional"`
	Region    bool        `hcl:"region,optional"`
	Tags      string      `hcl:"tags,optional"`
	Sensitive []string    `hcl:"sensitive,optional"`
	Changes   []string    `hcl:"changes,optional"`
	ForceNew  []string    `hcl:"force_new,optional"`
	Grows     []string    `hcl:"grows,optional"`
	Required  *section    `hcl:"required,block"`
	Optional  *section    `hcl:"optional,block"`
	Settled   *section    `hcl:"settled,block"`
	Computed  *section    `hcl:"computed,block"`
	WriteOnly *section    `hcl:"write_only,block"`
	Values    *section    `hcl:"values,block"`
	Blocks    []blockBody `hcl:"block,block"`
}

// kind reads a whole type.
func (b *blockBody) kind() (Kind, error) {
	block, err := b.block()
	if err != nil {
		return Kind{}, err
	}
	kind := Kind{
		Block: block, Changes: b.Changes, ForceNew: b.ForceNew, Grows: b.Grows, Tagged: b.Tags == "settled" || b.Tags == "computed",
	}
	for _, name := range b.ForceNew {
		if !block.Type().HasAttribute(name) {
			return Kind{}, fmt.Errorf("force_new: there is no %s", name)
		}
	}
	for _, name := range b.Grows {
		if !block.Type().HasAttribute(name) || !block.Type().AttributeType(name).IsSetType() {
			return Kind{}, fmt.Errorf("grows: there is no set %s", name)
		}
	}
	values, err := b.Values.sorted()
	if err != nil {
		return Kind{}, err
	}
	for _, value := range values {
		kind.Values = append(kind.Values, Value{Name: value.Name, Expr: value.Expr})
	}
	for _, name := range slices.Concat(b.Changes, names(kind.Values)) {
		if attr, ok := block.Attribute(name); !ok || !attr.Computed {
			return Kind{}, fmt.Errorf("the value of %s: want one that is settled or computed", name)
		}
	}
	return kind, nil
}

func names(values []Value) []string {
	var out []string
	for _, value := range values {
		out = append(out, value.Name)
	}
	return out
}

// block reads the attributes and blocks.
func (b *blockBody) block() (Block, error) {
	var out Block
	out.Attributes = b.common()
	for _, part := range []struct {
		section *section
		as      Attribute
	}{
		{b.Required, Attribute{Required: true}},
		{b.Optional, Attribute{Optional: true}},
		{b.Settled, Attribute{Optional: true, Computed: true}},
		{b.Computed, Attribute{Computed: true}},
		{b.WriteOnly, Attribute{Optional: true, WriteOnly: true}},
	} {
		written, err := part.section.sorted()
		if err != nil {
			return out, err
		}
		for _, one := range written {
			typ, diags := typeexpr.Type(one.Expr)
			if diags.HasErrors() {
				return out, diags
			}
			attr := part.as
			attr.Name, attr.Type, attr.Sensitive = one.Name, typ, slices.Contains(b.Sensitive, one.Name)
			out.Attributes = append(out.Attributes, attr)
		}
	}
	for i := range b.Blocks {
		nested, err := b.Blocks[i].nested()
		if err != nil {
			return out, fmt.Errorf("%s: %w", b.Blocks[i].Name, err)
		}
		out.Blocks = append(out.Blocks, nested)
	}
	slices.SortFunc(out.Attributes, func(a, b Attribute) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Blocks, func(a, b Nested) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// common are the attributes of most types.
func (b *blockBody) common() []Attribute {
	var out []Attribute
	if b.Region {
		out = append(out, Attribute{Name: "region", Type: cty.String, Optional: true, Computed: true})
	}
	tags := Attribute{Name: "tags", Type: cty.Map(cty.String), Optional: true}
	all := Attribute{Name: "tags_all", Type: cty.Map(cty.String), Optional: true, Computed: true}
	switch b.Tags {
	case "settled":
		out = append(out, tags, all)
	case "computed":
		all.Optional = false
		out = append(out, tags, all)
	}
	return out
}

func (b *blockBody) nested() (Nested, error) {
	if !slices.Contains([]Nesting{List, Set, Single}, b.Nesting) {
		return Nested{}, fmt.Errorf("nesting %q: want list, set or single", b.Nesting)
	}
	inner, err := b.block()
	return Nested{Name: b.Name, Nesting: b.Nesting, Min: b.Min, Max: b.Max, Block: inner}, err
}

// sorted returns a section's attributes in the order of the file.
func (s *section) sorted() ([]*hcl.Attribute, error) {
	if s == nil {
		return nil, nil
	}
	attrs, diags := s.Body.JustAttributes()
	if diags.HasErrors() {
		return nil, diags
	}
	var out []*hcl.Attribute
	for _, attr := range attrs {
		out = append(out, attr)
	}
	slices.SortFunc(out, func(a, b *hcl.Attribute) int { return cmp.Compare(a.Range.Start.Byte, b.Range.Start.Byte) })
	return out, nil
}
