package httpapi

import (
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// newRegistry makes a registry of schemas that knows the types of package admin whose JSON is
// that of a protocol message.
func newRegistry() huma.Registry {
	r := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	r.RegisterTypeAlias(reflect.TypeFor[admin.ShardStatus](), reflect.TypeFor[shardSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[admin.Group](), reflect.TypeFor[groupSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[admin.Instance](), reflect.TypeFor[instanceSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[admin.ConfigStatus](), reflect.TypeFor[configSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[admin.Preview](), reflect.TypeFor[previewSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[admin.Effect](), reflect.TypeFor[effectSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[admin.Problem](), reflect.TypeFor[problemSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[admin.SizeOverrides](), reflect.TypeFor[overridesSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[rpc.Violation](), reflect.TypeFor[violationSchema]())
	return r
}

type (
	violationSchema struct{}
	shardSchema     struct{}
	groupSchema     struct{}
	instanceSchema  struct{}
	configSchema    struct{}
	problemSchema   struct{}
	overridesSchema struct{}
	previewSchema   struct{}
	effectSchema    struct{}
)

// Schema implements huma.SchemaProvider.
func (shardSchema) Schema(r huma.Registry) *huma.Schema {
	return inShard(r, "ShardStatus", &nstancev1.GetShardStatusResponse{}, nil)
}

// Schema implements huma.SchemaProvider.
func (groupSchema) Schema(r huma.Registry) *huma.Schema {
	return inShard(r, "Group", &nstancev1.GroupStatus{}, map[string]*huma.Schema{
		"already_gone": {Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString},
			Description: "Of the instances that a change was to remove: those that were gone already"},
		"instances": {Type: huma.TypeArray, Items: messageRef(r, (&nstancev1.GroupInstance{}).ProtoReflect().Descriptor()),
			Description: "Not in answers to changes, in events, and in lists with omit=instances"},
	})
}

// Schema implements huma.SchemaProvider.
func (instanceSchema) Schema(r huma.Registry) *huma.Schema {
	return inShard(r, "Instance", &nstancev1.InstanceStatus{}, nil)
}

// Schema implements huma.SchemaProvider.
func (configSchema) Schema(r huma.Registry) *huma.Schema {
	return inShard(r, "ConfigStatus", &nstancev1.GetConfigStatusResponse{}, nil)
}

// Schema implements huma.SchemaProvider.
func (previewSchema) Schema(r huma.Registry) *huma.Schema {
	return inShard(r, "Preview", &nstancev1.PreviewConfigResponse{}, nil)
}

// Schema implements huma.SchemaProvider.
func (effectSchema) Schema(r huma.Registry) *huma.Schema {
	return messageRef(r, (&nstancev1.ConfigPreview{}).ProtoReflect().Descriptor())
}

// Schema implements huma.SchemaProvider.
func (problemSchema) Schema(r huma.Registry) *huma.Schema {
	return refTo(r, "ShardProblem", func() *huma.Schema {
		return ofMessage(r, (&nstancev1.WatchErrorsResponse{}).ProtoReflect().Descriptor())
	})
}

// Schema implements huma.SchemaProvider.
func (overridesSchema) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: messageRef(r, (&nstancev1.SizeOverride{}).ProtoReflect().Descriptor())}
}

// Schema implements huma.SchemaProvider. The protocol's type has the same JSON as package rpc's.
func (violationSchema) Schema(r huma.Registry) *huma.Schema {
	return messageRef(r, (&nstancev1.Violation{}).ProtoReflect().Descriptor())
}

// inShard is a message with the shard, and with optional fields.
func inShard(r huma.Registry, name string, m proto.Message, optional map[string]*huma.Schema) *huma.Schema {
	return refTo(r, name, func() *huma.Schema {
		s := ofMessage(r, m.ProtoReflect().Descriptor())
		s.Properties["shard"] = &huma.Schema{Type: huma.TypeString, Description: "The shard that answered"}
		s.Required = append([]string{"shard"}, s.Required...)
		for field, of := range optional {
			s.Properties[field] = of
			s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return name == field })
		}
		return s
	})
}

// refTo is a reference to a schema that is made once.
func refTo(r huma.Registry, name string, make func() *huma.Schema) *huma.Schema {
	if r.Map()[name] == nil {
		r.Map()[name] = &huma.Schema{} // for recursive messages
		s := make()
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

func messageRef(r huma.Registry, d protoreflect.MessageDescriptor) *huma.Schema {
	switch d.FullName() {
	case "google.protobuf.Timestamp":
		return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
	case "google.protobuf.Struct":
		return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
	default:
		return refTo(r, string(d.Name()), func() *huma.Schema { return ofMessage(r, d) })
	}
}

// ofMessage is the schema of a message's JSON, with the protocol's names of fields: those that
// are always there are required.
func ofMessage(r huma.Registry, d protoreflect.MessageDescriptor) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}}
	for n := range d.Fields().Len() {
		f := d.Fields().Get(n)
		name := string(f.Name())
		s.Properties[name] = ofField(r, f)
		if !f.HasPresence() {
			s.Required = append(s.Required, name)
		}
	}
	return s
}

func ofField(r huma.Registry, f protoreflect.FieldDescriptor) *huma.Schema {
	switch {
	case f.IsMap():
		return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: ofValue(r, f.MapValue())}
	case f.IsList():
		return &huma.Schema{Type: huma.TypeArray, Items: ofValue(r, f)}
	default:
		return ofValue(r, f)
	}
}

func ofValue(r huma.Registry, f protoreflect.FieldDescriptor) *huma.Schema {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return &huma.Schema{Type: huma.TypeBoolean}
	case protoreflect.Int32Kind:
		return &huma.Schema{Type: huma.TypeInteger, Format: "int32"}
	case protoreflect.Int64Kind: // more than a number of JSON can hold
		return &huma.Schema{Type: huma.TypeString, Pattern: "^-?[0-9]+$", Description: "A whole number of 64 bits"}
	case protoreflect.EnumKind:
		s := &huma.Schema{Type: huma.TypeString}
		for n := range f.Enum().Values().Len() {
			s.Enum = append(s.Enum, string(f.Enum().Values().Get(n).Name()))
		}
		return s
	case protoreflect.MessageKind:
		return messageRef(r, f.Message())
	default:
		return &huma.Schema{Type: huma.TypeString}
	}
}
