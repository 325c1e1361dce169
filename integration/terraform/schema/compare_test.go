package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/nstance/nstance/integration/terraform/stub/catalog"
)

// said is Terraform's output for a provider with exactly the stub's types.
func said(t *testing.T) provider {
	t.Helper()
	types, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	kinds := func(of map[string]catalog.Kind) map[string]schema {
		out := map[string]schema{}
		for name, kind := range of {
			out[name] = schema{Block: saidOf(t, kind.Block)}
		}
		return out
	}
	return provider{
		Provider:  &schema{Block: saidOf(t, types.Provider)},
		Resources: kinds(types.Resources), Data: kinds(types.Data), Ephemeral: kinds(types.Ephemeral),
	}
}

func saidOf(t *testing.T, of catalog.Block) block {
	t.Helper()
	out := block{Attributes: map[string]attribute{}, Blocks: map[string]nested{}}
	for _, attr := range of.Attributes {
		typ, err := ctyjson.MarshalType(attr.Type)
		if err != nil {
			t.Fatal(err)
		}
		out.Attributes[attr.Name] = attribute{
			Type: typ, Required: attr.Required, Optional: attr.Optional, Computed: attr.Computed,
			WriteOnly: attr.WriteOnly, Sensitive: attr.Sensitive,
		}
	}
	for _, one := range of.Blocks {
		out.Blocks[one.Name] = nested{Nesting: string(one.Nesting), Min: one.Min, Max: one.Max, Block: saidOf(t, one.Block)}
	}
	return out
}

// judge writes a document and compares it.
func judge(t *testing.T, of provider) (string, error) {
	t.Helper()
	text, err := json.Marshal(document{Providers: map[string]provider{"registry.terraform.io/hashicorp/aws": of}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = run(name, &out)
	return out.String(), err
}

// TestDifferences: equal types have no difference, and each difference is named.
func TestDifferences(t *testing.T) {
	if out, err := judge(t, said(t)); err != nil {
		t.Fatalf("the stub differs from itself: %v\n%s", err, out)
	}
	set := func(kind, name string, change func(*attribute)) func(provider) {
		return func(p provider) {
			attr := p.Resources[kind].Block.Attributes[name]
			change(&attr)
			p.Resources[kind].Block.Attributes[name] = attr
		}
	}
	for want, change := range map[string]func(provider){
		"aws_vpc: the provider has no such type":           func(p provider) { delete(p.Resources, "aws_vpc") },
		"data.aws_region: the provider has no such type":   func(p provider) { delete(p.Data, "aws_region") },
		"aws_vpc.tags: the provider has no such attribute": func(p provider) { delete(p.Resources["aws_vpc"].Block.Attributes, "tags") },
		"aws_launch_template.monitoring: the provider has no such": func(p provider) {
			delete(p.Resources["aws_launch_template"].Block.Blocks, "monitoring")
		},
		`aws_vpc.tags: the stub has type ["map","string"], the provider "bool"`: set("aws_vpc", "tags", func(a *attribute) {
			a.Type = json.RawMessage(`"bool"`)
		}),
		"aws_vpc.id: in the stub optional and computed, in the provider computed": set(
			"aws_vpc", "id", func(a *attribute) { a.Optional = false }),
		"aws_vpc.id: in the stub optional and computed, in the provider optional and computed and sensitive": set(
			"aws_vpc", "id", func(a *attribute) { a.Sensitive = true }),
		"aws_vpc.id: the provider deprecates it": set("aws_vpc", "id", func(a *attribute) { a.Deprecated = true }),
		"aws_vpc.new: the provider requires it": set("aws_vpc", "new", func(a *attribute) {
			a.Required, a.Type = true, json.RawMessage(`"string"`)
		}),
		"aws_launch_template.new: the provider requires this block": func(p provider) {
			p.Resources["aws_launch_template"].Block.Blocks["new"] = nested{Nesting: "list", Min: 1}
		},
		"aws_launch_template.monitoring: in the stub a list of 0 to 1, in the provider a set of 0 to 1": func(p provider) {
			blocks := p.Resources["aws_launch_template"].Block.Blocks
			one := blocks["monitoring"]
			one.Nesting = "set"
			blocks["monitoring"] = one
		},
		"aws_launch_template.metadata_options.http_tokens: the provider has no": func(p provider) {
			delete(p.Resources["aws_launch_template"].Block.Blocks["metadata_options"].Block.Attributes, "http_tokens")
		},
		"provider.region: the provider has no such attribute": func(p provider) { delete(p.Provider.Block.Attributes, "region") },
	} {
		real := said(t)
		change(real)
		out, err := judge(t, real)
		if err == nil || strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, want) {
			t.Errorf("want one line %q, not %q (%v)", want, out, err)
		}
	}
}

// TestRead refuses documents without the provider.
func TestRead(t *testing.T) {
	for _, text := range []string{``, `{`, `{}`, `{"provider_schemas":{"registry.terraform.io/hashicorp/aws":{}}}`, `[]`} {
		if _, err := read(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for a schema", text)
		}
	}
}

// FuzzDifferences: whatever can be read can be compared.
func FuzzDifferences(f *testing.F) {
	types, err := catalog.Load()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"provider_schemas":{"x/hashicorp/aws":{"resource_schemas":{"aws_vpc":{"block":{"attributes":{"id":{"type":"string"}}}}}}}}`)
	f.Add(`{"provider_schemas":{"x/hashicorp/aws":{"provider":{},"resource_schemas":{"aws_vpc":{"block":{"block_types":{"x":{}}}}}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		real, err := read(strings.NewReader(text))
		if err != nil {
			return
		}
		if len(differences(types, real)) == 0 {
			t.Error("a text is as the provider is")
		}
	})
}
