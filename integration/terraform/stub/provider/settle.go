package provider

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/nstance/nstance/integration/terraform/stub/catalog"
)

// withoutWriteOnly removes write-only values, in nested blocks too.
func withoutWriteOnly(block catalog.Block, value cty.Value) (cty.Value, error) {
	return cty.Transform(value, func(path cty.Path, v cty.Value) (cty.Value, error) {
		if writeOnly(block, path) {
			return cty.NullVal(v.Type()), nil
		}
		return v, nil
	})
}

// writeOnly reports whether a path leads to a write-only attribute.
func writeOnly(block catalog.Block, path cty.Path) bool {
	for _, step := range path {
		step, ok := step.(cty.GetAttrStep)
		if !ok {
			continue
		}
		if attr, ok := block.Attribute(step.Name); ok {
			return attr.WriteOnly
		}
		for _, nested := range block.Blocks {
			if nested.Name == step.Name {
				block = nested.Block
				break
			}
		}
	}
	return false
}

// unknowns marks as unknown what the configuration leaves to AWS: everything for a new resource,
// and otherwise what changes with each update.
func (s *Server) unknowns(kind catalog.Kind, proposed, config cty.Value, isNew bool) cty.Value {
	values := proposed.AsValueMap()
	for _, attr := range kind.Attributes {
		if attr.Computed && config.GetAttr(attr.Name).IsNull() && (isNew || slices.Contains(kind.Changes, attr.Name)) {
			values[attr.Name] = cty.UnknownVal(attr.Type)
		}
	}
	if kind.Tagged && config.GetAttr("tags_all").IsNull() {
		values["tags_all"] = s.allTags(values["tags"])
	}
	return cty.ObjectVal(values)
}

// allTags returns a resource's tags and those of all resources.
func (s *Server) allTags(tags cty.Value) cty.Value {
	s.mu.Lock()
	defaults := s.tags
	s.mu.Unlock()
	if !tags.IsWhollyKnown() || !defaults.IsWhollyKnown() {
		return cty.UnknownVal(cty.Map(cty.String))
	}
	all := map[string]cty.Value{}
	for _, some := range []cty.Value{defaults, tags} {
		if some.IsNull() {
			continue
		}
		for name, value := range some.AsValueMap() {
			all[name] = value
		}
	}
	if len(all) == 0 {
		return cty.MapValEmpty(cty.String)
	}
	return cty.MapVal(all)
}

// settle sets unknown values: by the expressions of the catalog, or to empty values. Write-only
// values are in the configuration only.
func (s *Server) settle(name string, kind catalog.Kind, planned, config cty.Value, revision int) (cty.Value, error) {
	attrs := planned.AsValueMap()
	for _, attr := range kind.Attributes {
		if attr.Name == "region" && unset(attrs["region"]) {
			attrs["region"] = cty.StringVal(s.regionOf(attrs))
		}
	}
	scope, err := s.scope(name, attrs, revision)
	if err != nil {
		return cty.NilVal, err
	}
	for _, value := range kind.Values {
		if !unset(attrs[value.Name]) {
			continue
		}
		scope.Variables = variables(kind, attrs, config, revision)
		settled, diags := value.Expr.Value(scope)
		if diags.HasErrors() {
			return cty.NilVal, diags
		}
		attr, _ := kind.Attribute(value.Name)
		if attrs[value.Name], err = convert.Convert(settled, attr.Type); err != nil {
			return cty.NilVal, err
		}
	}
	if kind.Tagged && !attrs["tags_all"].IsKnown() {
		attrs["tags_all"] = s.allTags(attrs["tags"])
	}
	return cty.Transform(cty.ObjectVal(attrs), func(_ cty.Path, v cty.Value) (cty.Value, error) {
		if v.IsKnown() {
			return v, nil
		}
		return nothing(v.Type()), nil
	})
}

// variables are those of expressions: the attributes, of which unset ones are null, and the
// write-only values.
func variables(kind catalog.Kind, attrs map[string]cty.Value, config cty.Value, revision int) map[string]cty.Value {
	out := map[string]cty.Value{"revision": cty.NumberIntVal(int64(revision))}
	for name, value := range attrs {
		if !value.IsKnown() {
			value = cty.NullVal(value.Type())
		}
		out[name] = value
	}
	for _, attr := range kind.Attributes {
		if attr.WriteOnly {
			out[attr.Name] = config.GetAttr(attr.Name)
		}
	}
	return out
}

// unset reports whether a value is set by AWS: unknown in a plan, null in a data source.
func unset(v cty.Value) bool { return !v.IsKnown() || v.IsNull() }

// nothing returns the empty value of a type, which AWS returns for a missing one.
func nothing(typ cty.Type) cty.Value {
	switch {
	case typ == cty.String:
		return cty.StringVal("")
	case typ == cty.Number:
		return cty.Zero
	case typ == cty.Bool:
		return cty.False
	case typ.IsListType():
		return cty.ListValEmpty(typ.ElementType())
	case typ.IsSetType():
		return cty.SetValEmpty(typ.ElementType())
	case typ.IsMapType():
		return cty.MapValEmpty(typ.ElementType())
	default:
		return cty.NullVal(typ)
	}
}

// scope has the functions for the catalog's expressions.
func (s *Server) scope(name string, attrs map[string]cty.Value, revision int) (*hcl.EvalContext, error) {
	seed, err := seedOf(name, attrs, revision)
	if err != nil {
		return nil, err
	}
	return &hcl.EvalContext{Functions: functions(seed, s.regionOf(attrs))}, nil
}

// regionOf returns the region of a resource.
func (s *Server) regionOf(attrs map[string]cty.Value) string {
	if region, ok := attrs["region"]; ok && !unset(region) {
		return region.AsString()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.region
}
