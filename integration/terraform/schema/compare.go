package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/nstance/nstance/integration/terraform/stub/catalog"
)

// differences compares all types of the stub, a line for each difference. Missing types and
// attributes are none, unless they are required.
func differences(ours catalog.Types, theirs provider) []string {
	var out []string
	if theirs.Provider != nil {
		out = blocks("provider", ours.Provider, theirs.Provider.Block)
	}
	for _, part := range []struct {
		word   string
		ours   map[string]catalog.Kind
		theirs map[string]schema
	}{
		{"", ours.Resources, theirs.Resources},
		{"data.", ours.Data, theirs.Data},
		{"ephemeral.", ours.Ephemeral, theirs.Ephemeral},
	} {
		for _, name := range slices.Sorted(maps.Keys(part.ours)) {
			real, ok := part.theirs[name]
			if !ok {
				out = append(out, part.word+name+": the provider has no such type")
				continue
			}
			out = append(out, blocks(part.word+name, part.ours[name].Block, real.Block)...)
		}
	}
	return out
}

func blocks(path string, ours catalog.Block, theirs block) []string {
	var out []string
	known := map[string]bool{}
	for _, attr := range ours.Attributes {
		known[attr.Name] = true
		at := path + "." + attr.Name
		if real, ok := theirs.Attributes[attr.Name]; ok {
			out = append(out, attributes(at, attr, real)...)
		} else {
			out = append(out, at+": the provider has no such attribute")
		}
	}
	for _, inner := range ours.Blocks {
		known[inner.Name] = true
		at := path + "." + inner.Name
		if real, ok := theirs.Blocks[inner.Name]; ok {
			out = append(out, nesting(at, inner, real)...)
		} else {
			out = append(out, at+": the provider has no such block")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(theirs.Attributes)) {
		if theirs.Attributes[name].Required && !known[name] {
			out = append(out, path+"."+name+": the provider requires it, and the stub doesn't know it")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(theirs.Blocks)) {
		if theirs.Blocks[name].Min > 0 && !known[name] {
			out = append(out, path+"."+name+": the provider requires this block, and the stub doesn't know it")
		}
	}
	return out
}

func attributes(path string, ours catalog.Attribute, theirs attribute) []string {
	var out []string
	typ, err := ctyjson.UnmarshalType(theirs.Type)
	switch {
	case err != nil:
		out = append(out, fmt.Sprintf("%s: the provider's type %s: %v", path, theirs.Type, err))
	case !typ.Equals(ours.Type):
		out = append(out, fmt.Sprintf("%s: the stub has type %s, the provider %s", path, typeName(ours.Type), typeName(typ)))
	}
	real := mode(theirs.Required, theirs.Optional, theirs.Computed, theirs.WriteOnly, theirs.Sensitive)
	stub := mode(ours.Required, ours.Optional, ours.Computed, ours.WriteOnly, ours.Sensitive)
	if stub != real {
		out = append(out, fmt.Sprintf("%s: in the stub %s, in the provider %s", path, stub, real))
	}
	if theirs.Deprecated {
		out = append(out, path+": the provider deprecates it, so no module may use it")
	}
	return out
}

func typeName(typ cty.Type) string {
	text, err := ctyjson.MarshalType(typ)
	if err != nil {
		return typ.FriendlyName()
	}
	return string(text)
}

// mode is how an attribute is set.
func mode(required, optional, computed, writeOnly, sensitive bool) string {
	var words []string
	for _, word := range []struct {
		is   bool
		name string
	}{{required, "required"}, {optional, "optional"}, {computed, "computed"}, {writeOnly, "write-only"}, {sensitive, "sensitive"}} {
		if word.is {
			words = append(words, word.name)
		}
	}
	return strings.Join(words, " and ")
}

func nesting(path string, ours catalog.Nested, theirs nested) []string {
	var out []string
	if string(ours.Nesting) != theirs.Nesting || ours.Min != theirs.Min || ours.Max != theirs.Max {
		out = append(out, fmt.Sprintf("%s: in the stub a %s of %d to %d, in the provider a %s of %d to %d (0: no limit)",
			path, ours.Nesting, ours.Min, ours.Max, theirs.Nesting, theirs.Min, theirs.Max))
	}
	return append(out, blocks(path, ours.Block, theirs.Block)...)
}
