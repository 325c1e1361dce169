package provider_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/msgpack"

	"github.com/nstance/nstance/integration/terraform/stub/catalog"
	"github.com/nstance/nstance/integration/terraform/stub/provider"
)

// client calls a server as Terraform does.
type client struct {
	*testing.T
	types  catalog.Types
	server *provider.Server
}

func newClient(t *testing.T, region string) client {
	types, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	server, err := provider.New(types)
	if err != nil {
		t.Fatal(err)
	}
	c := client{T: t, types: types, server: server}
	config := c.wire(types.Provider, map[string]cty.Value{
		"region": cty.StringVal(region),
		"default_tags": cty.ListVal([]cty.Value{cty.ObjectVal(map[string]cty.Value{
			"tags": cty.MapVal(map[string]cty.Value{"Owner": cty.StringVal("tests")}),
		})}),
	})
	answer, err := server.ConfigureProvider(t.Context(), &tfprotov5.ConfigureProviderRequest{Config: config})
	c.fine(err, answer.Diagnostics)
	return c
}

func (c client) fine(err error, diags []*tfprotov5.Diagnostic) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
	for _, diag := range diags {
		c.Fatal(diag.Summary)
	}
}

// object completes a configuration as Terraform does: missing attributes are null, and missing
// blocks an empty list.
func object(block catalog.Block, set map[string]cty.Value) cty.Value {
	all := map[string]cty.Value{}
	for _, attr := range block.Attributes {
		all[attr.Name] = cty.NullVal(attr.Type)
	}
	for _, nested := range block.Blocks {
		switch typ := nested.Block.Type(); nested.Nesting {
		case catalog.Set:
			all[nested.Name] = cty.SetValEmpty(typ)
		case catalog.Single:
			all[nested.Name] = cty.NullVal(typ)
		default:
			all[nested.Name] = cty.ListValEmpty(typ)
		}
	}
	for name, value := range set {
		all[name] = value
	}
	return cty.ObjectVal(all)
}

func (c client) wire(block catalog.Block, set map[string]cty.Value) *tfprotov5.DynamicValue {
	c.Helper()
	return c.encode(block, object(block, set))
}

func (c client) encode(block catalog.Block, value cty.Value) *tfprotov5.DynamicValue {
	c.Helper()
	text, err := msgpack.Marshal(value, block.Type())
	if err != nil {
		c.Fatal(err)
	}
	return &tfprotov5.DynamicValue{MsgPack: text}
}

func (c client) decode(block catalog.Block, value *tfprotov5.DynamicValue) cty.Value {
	c.Helper()
	out, err := msgpack.Unmarshal(value.MsgPack, block.Type())
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// made is a resource between two calls.
type made struct {
	planned, state cty.Value
	private        []byte
}

// apply plans and applies a configuration over the present state.
func (c client) apply(name string, prior *made, set map[string]cty.Value) made {
	c.Helper()
	ctx, block := context.Background(), c.types.Resources[name].Block
	before, private, proposed := cty.NullVal(block.Type()), []byte(nil), object(block, set)
	if prior != nil {
		before, private = prior.state, prior.private
		kept := proposed.AsValueMap()
		for _, attr := range block.Attributes {
			if attr.Computed && kept[attr.Name].IsNull() {
				kept[attr.Name] = before.GetAttr(attr.Name)
			}
		}
		proposed = cty.ObjectVal(kept)
	}
	config := c.wire(block, set)
	plan, err := c.server.PlanResourceChange(ctx, &tfprotov5.PlanResourceChangeRequest{
		TypeName: name, Config: config, PriorPrivate: private,
		PriorState: c.encode(block, before), ProposedNewState: c.encode(block, proposed),
	})
	c.fine(err, plan.Diagnostics)
	done, err := c.server.ApplyResourceChange(ctx, &tfprotov5.ApplyResourceChangeRequest{
		TypeName: name, Config: config, PriorState: c.encode(block, before),
		PlannedState: plan.PlannedState, PlannedPrivate: plan.PlannedPrivate,
	})
	c.fine(err, done.Diagnostics)
	return made{planned: c.decode(block, plan.PlannedState), state: c.decode(block, done.NewState), private: done.Private}
}

func text(t *testing.T, value cty.Value, name string) string {
	t.Helper()
	attr := value.GetAttr(name)
	if !attr.IsKnown() || attr.IsNull() {
		t.Fatalf("%s is %#v, want a text", name, attr)
	}
	return attr.AsString()
}

// TestCreate: values set by AWS are unknown in a plan, and afterwards have AWS's form and are the
// same each time.
func TestCreate(t *testing.T) {
	c := newClient(t, "cn-north-1")
	vpc := c.apply("aws_vpc", nil, map[string]cty.Value{"cidr_block": cty.StringVal("10.0.0.0/16")})
	for _, name := range []string{"id", "arn", "region", "default_security_group_id"} {
		if vpc.planned.GetAttr(name).IsKnown() {
			t.Errorf("%s is known before there is a VPC: %#v", name, vpc.planned.GetAttr(name))
		}
	}
	for name, want := range map[string]string{
		"id": `^vpc-[0-9a-f]{17}$`, "arn": `^arn:aws-cn:ec2:cn-north-1:\d{12}:vpc/vpc-[0-9a-f]{17}$`,
		"region": `^cn-north-1$`, "cidr_block": `^10\.0\.0\.0/16$`,
	} {
		if got := text(t, vpc.state, name); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	if got := vpc.state.GetAttr("tags_all").AsValueMap()["Owner"]; got != cty.StringVal("tests") {
		t.Errorf("the tag of the provider is %#v", got)
	}
	if vpc.state.IsWhollyKnown() == false {
		t.Errorf("something is unknown once the VPC is there: %#v", vpc.state)
	}
	again := c.apply("aws_vpc", nil, map[string]cty.Value{"cidr_block": cty.StringVal("10.0.0.0/16")})
	if !again.state.RawEquals(vpc.state) {
		t.Errorf("the same configuration becomes %#v and %#v", vpc.state, again.state)
	}
	other := c.apply("aws_vpc", nil, map[string]cty.Value{"cidr_block": cty.StringVal("10.1.0.0/16")})
	if text(t, other.state, "id") == text(t, vpc.state, "id") {
		t.Error("two VPCs have one id")
	}
}

// TestUpdate: an update keeps the id, and gives a launch template a new version.
func TestUpdate(t *testing.T) {
	c := newClient(t, "eu-west-1")
	first := c.apply("aws_launch_template", nil, map[string]cty.Value{"image_id": cty.StringVal("ami-1")})
	second := c.apply("aws_launch_template", &first, map[string]cty.Value{"image_id": cty.StringVal("ami-2")})
	if text(t, first.state, "id") != text(t, second.state, "id") || second.planned.GetAttr("latest_version").IsKnown() {
		t.Errorf("an update of %#v is planned as %#v", first.state, second.planned)
	}
	for want, state := range map[int64]cty.Value{1: first.state, 2: second.state} {
		if got := state.GetAttr("latest_version"); !got.RawEquals(cty.NumberIntVal(want)) {
			t.Errorf("the version is %#v, want %d", got, want)
		}
	}
	same := c.apply("aws_launch_template", &second, map[string]cty.Value{"image_id": cty.StringVal("ami-2")})
	if !same.planned.RawEquals(second.state) {
		t.Errorf("without a change the plan is %#v, want %#v", same.planned, second.state)
	}
}

// TestWriteOnly: a write-only value is in no plan and no state.
func TestWriteOnly(t *testing.T) {
	c := newClient(t, "eu-west-1")
	secret := c.apply("aws_secretsmanager_secret_version", nil, map[string]cty.Value{
		"secret_id": cty.StringVal("arn:x"), "secret_string_wo": cty.StringVal("hush"), "secret_string_wo_version": cty.NumberIntVal(1),
	})
	if !secret.state.GetAttr("has_secret_string_wo").True() {
		t.Error("the secret has not been written")
	}
	for _, value := range []cty.Value{secret.planned, secret.state} {
		if got := value.GetAttr("secret_string_wo"); !got.IsNull() {
			t.Errorf("the secret is kept: %#v", got)
		}
	}
}

// TestRegion: a region is required.
func TestRegion(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	c := newClient(t, "eu-west-1")
	config := c.wire(c.types.Provider, nil)
	answer, err := c.server.ConfigureProvider(t.Context(), &tfprotov5.ConfigureProviderRequest{Config: config})
	if err != nil || len(answer.Diagnostics) != 1 {
		t.Fatalf("no region: %v, %+v", err, answer)
	}
}

// TestEphemeral: a password has the requested length.
func TestEphemeral(t *testing.T) {
	c := newClient(t, "eu-west-1")
	block := c.types.Ephemeral["aws_secretsmanager_random_password"].Block
	answer, err := c.server.OpenEphemeralResource(t.Context(), &tfprotov5.OpenEphemeralResourceRequest{
		TypeName: "aws_secretsmanager_random_password",
		Config:   c.wire(block, map[string]cty.Value{"password_length": cty.NumberIntVal(40)}),
	})
	c.fine(err, answer.Diagnostics)
	if got := text(t, c.decode(block, answer.Result), "random_password"); len(got) != 40 {
		t.Errorf("the password is %q, want 40 characters", got)
	}
}

// TestEveryType can be created or read with only its required strings: every expression of the
// catalog is valid.
func TestEveryType(t *testing.T) {
	c := newClient(t, "us-gov-west-1")
	whole := func(name string, state cty.Value) {
		t.Helper()
		if !state.IsWhollyKnown() || state.Type().HasAttribute("id") && text(t, state, "id") == "" {
			t.Errorf("%s is %#v", name, state)
		}
	}
	for name, kind := range c.types.Resources {
		whole(name, c.apply(name, nil, required(kind)).state)
	}
	for name, kind := range c.types.Data {
		answer, err := c.server.ReadDataSource(t.Context(), &tfprotov5.ReadDataSourceRequest{
			TypeName: name, Config: c.wire(kind.Block, required(kind)),
		})
		c.fine(err, answer.Diagnostics)
		whole(name, c.decode(kind.Block, answer.State))
	}
}

func required(kind catalog.Kind) map[string]cty.Value {
	set := map[string]cty.Value{}
	for _, attr := range kind.Attributes {
		if attr.Required && attr.Type == cty.String {
			set[attr.Name] = cty.StringVal("some-" + attr.Name)
		}
	}
	return set
}

// TestReplace: a change that is not possible in place requires a replacement, and no other change
// does.
func TestReplace(t *testing.T) {
	c := newClient(t, "eu-west-1")
	block := c.types.Resources["aws_lb_target_group"].Block
	first := c.apply("aws_lb_target_group", nil, map[string]cty.Value{"port": cty.NumberIntVal(80)})
	for want, changed := range map[int]map[string]cty.Value{
		0: {"port": cty.NumberIntVal(80), "slow_start": cty.NumberIntVal(30)},
		1: {"port": cty.NumberIntVal(81)},
	} {
		proposed := first.state.AsValueMap()
		for name, value := range changed {
			proposed[name] = value
		}
		plan, err := c.server.PlanResourceChange(t.Context(), &tfprotov5.PlanResourceChangeRequest{
			TypeName: "aws_lb_target_group", Config: c.wire(block, changed), PriorPrivate: first.private,
			PriorState: c.encode(block, first.state), ProposedNewState: c.encode(block, cty.ObjectVal(proposed)),
		})
		c.fine(err, plan.Diagnostics)
		if len(plan.RequiresReplace) != want {
			t.Errorf("%v asks for %v", changed, plan.RequiresReplace)
		}
	}
}
