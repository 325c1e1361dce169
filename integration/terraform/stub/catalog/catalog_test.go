package catalog_test

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/nstance/nstance/integration/terraform/stub/catalog"
)

// TestLoad: the files can be loaded, and types match them.
func TestLoad(t *testing.T) {
	types, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of   map[string]catalog.Kind
		kind string
		want catalog.Attribute
	}{
		{types.Resources, "aws_vpc", catalog.Attribute{Name: "tags_all", Type: cty.Map(cty.String), Optional: true, Computed: true}},
		{types.Resources, "aws_subnet", catalog.Attribute{Name: "vpc_id", Type: cty.String, Required: true}},
		{types.Resources, "aws_iam_role", catalog.Attribute{Name: "arn", Type: cty.String, Computed: true}},
		{types.Resources, "aws_vpc_endpoint", catalog.Attribute{
			Name: "dns_entry", Computed: true,
			Type: cty.List(cty.Object(map[string]cty.Type{"dns_name": cty.String, "hosted_zone_id": cty.String})),
		}},
		{types.Resources, "aws_secretsmanager_secret_version", catalog.Attribute{
			Name: "secret_string_wo", Type: cty.String, Optional: true, WriteOnly: true, Sensitive: true,
		}},
		{types.Data, "aws_region", catalog.Attribute{Name: "region", Type: cty.String, Optional: true, Computed: true}},
		{types.Ephemeral, "aws_secretsmanager_random_password", catalog.Attribute{
			Name: "password_length", Type: cty.Number, Optional: true,
		}},
	} {
		got, ok := c.of[c.kind].Attribute(c.want.Name)
		if !ok || !got.Type.Equals(c.want.Type) {
			t.Errorf("%s.%s is %v of type %#v, want %#v", c.kind, c.want.Name, ok, got.Type, c.want.Type)
			continue
		}
		got.Type, c.want.Type = cty.NilType, cty.NilType
		if got != c.want {
			t.Errorf("%s.%s is %+v, want %+v", c.kind, c.want.Name, got, c.want)
		}
	}
}

// TestNames: duplicate names, names in two sections, and values without an attribute are errors.
func TestNames(t *testing.T) {
	types, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	var look func(path string, block catalog.Block)
	look = func(path string, block catalog.Block) {
		seen := map[string]bool{}
		for _, attr := range block.Attributes {
			if seen[attr.Name] {
				t.Errorf("%s.%s is there twice", path, attr.Name)
			}
			seen[attr.Name] = true
		}
		for _, nested := range block.Blocks {
			if seen[nested.Name] {
				t.Errorf("%s.%s is there twice", path, nested.Name)
			}
			seen[nested.Name] = true
			look(path+"."+nested.Name, nested.Block)
		}
	}
	look("provider", types.Provider)
	for _, of := range []map[string]catalog.Kind{types.Resources, types.Data, types.Ephemeral} {
		for name, kind := range of {
			look(name, kind.Block)
			if !strings.HasPrefix(name, "aws_") {
				t.Errorf("%s is no type of the provider", name)
			}
		}
	}
}
