package provider

import (
	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
	"github.com/zclconf/go-cty/cty/msgpack"

	"github.com/nstance/nstance/integration/terraform/stub/catalog"
)

// schemas returns all types in the protocol's form.
func schemas(types catalog.Types) (*tfprotov5.GetProviderSchemaResponse, error) {
	out := &tfprotov5.GetProviderSchemaResponse{
		ServerCapabilities:       &tfprotov5.ServerCapabilities{GetProviderSchemaOptional: true},
		ResourceSchemas:          map[string]*tfprotov5.Schema{},
		DataSourceSchemas:        map[string]*tfprotov5.Schema{},
		EphemeralResourceSchemas: map[string]*tfprotov5.Schema{},
	}
	provider, err := schemaBlock(types.Provider)
	if err != nil {
		return nil, err
	}
	out.Provider = &tfprotov5.Schema{Block: provider}
	for _, part := range []struct {
		into  map[string]*tfprotov5.Schema
		kinds map[string]catalog.Kind
	}{{out.ResourceSchemas, types.Resources}, {out.DataSourceSchemas, types.Data}, {out.EphemeralResourceSchemas, types.Ephemeral}} {
		for name, kind := range part.kinds {
			block, err := schemaBlock(kind.Block)
			if err != nil {
				return nil, err
			}
			part.into[name] = &tfprotov5.Schema{Block: block}
		}
	}
	return out, nil
}

func schemaBlock(block catalog.Block) (*tfprotov5.SchemaBlock, error) {
	out := &tfprotov5.SchemaBlock{}
	for _, attr := range block.Attributes {
		typ, err := wireType(attr.Type)
		if err != nil {
			return nil, err
		}
		out.Attributes = append(out.Attributes, &tfprotov5.SchemaAttribute{
			Name: attr.Name, Type: typ, Required: attr.Required, Optional: attr.Optional, Computed: attr.Computed,
			WriteOnly: attr.WriteOnly, Sensitive: attr.Sensitive,
		})
	}
	for _, nested := range block.Blocks {
		inner, err := schemaBlock(nested.Block)
		if err != nil {
			return nil, err
		}
		out.BlockTypes = append(out.BlockTypes, &tfprotov5.SchemaNestedBlock{
			TypeName: nested.Name, Block: inner, Nesting: nesting(nested.Nesting), MinItems: nested.Min, MaxItems: nested.Max,
		})
	}
	return out, nil
}

func nesting(of catalog.Nesting) tfprotov5.SchemaNestedBlockNestingMode {
	switch of {
	case catalog.Set:
		return tfprotov5.SchemaNestedBlockNestingModeSet
	case catalog.Single:
		return tfprotov5.SchemaNestedBlockNestingModeSingle
	default:
		return tfprotov5.SchemaNestedBlockNestingModeList
	}
}

// wireType returns a type of the protocol's library.
func wireType(typ cty.Type) (tftypes.Type, error) {
	text, err := ctyjson.MarshalType(typ)
	if err != nil {
		return nil, err
	}
	return tftypes.ParseJSONType(text) //nolint:staticcheck // the only way from one library's types to the other's
}

// decode decodes a value from Terraform.
func decode(value *tfprotov5.DynamicValue, typ cty.Type) (cty.Value, error) {
	if value == nil {
		return cty.NullVal(typ), nil
	}
	if len(value.JSON) > 0 {
		return ctyjson.Unmarshal(value.JSON, typ)
	}
	return msgpack.Unmarshal(value.MsgPack, typ)
}

func encode(value cty.Value, typ cty.Type) (*tfprotov5.DynamicValue, error) {
	text, err := msgpack.Marshal(value, typ)
	if err != nil {
		return nil, err
	}
	return &tfprotov5.DynamicValue{MsgPack: text}, nil
}
