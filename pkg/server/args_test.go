package server_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// colourful is a shard whose machines have a colour var, red or blue, and whose provider has no
// machine of type huge.
func colourful(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.world = fake.New(fake.Config{CheckArgs: func(spec provider.Spec) error {
		var wrong provider.FieldErrors
		if c := spec.Args["colour"]; c != nil && c != "red" && c != "blue" {
			wrong.Addf("args.colour", "%q is not valid: want red or blue", c)
		}
		if spec.InstanceType == "huge" {
			wrong.Addf("instance_type", "there is no %s: want small", spec.InstanceType)
		}
		return wrong.Err()
	}})
	s.config["VARS"] = `{ "colour": "red" }, "args": { "colour": "{{ .Vars.colour }}" }`
	s.putConfig(shardID)
	return s
}

// TestArgsThatTheProviderRefuses: they are refused by every call, with their path, and the
// provider is not called.
func TestArgsThatTheProviderRefuses(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := colourful(t)
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 2)
		creates := len(s.world.Calls(fake.OpCreate))
		colour := func(c string) *structpb.Struct {
			return &structpb.Struct{Fields: map[string]*structpb.Value{"colour": structpb.NewStringValue(c)}}
		}
		for name, c := range map[string]struct {
			ask  func() error
			want string
		}{
			"a group's vars": {func() error {
				_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Vars: colour("green")})
				return err
			}, "args.colour"},
			"a new group's type": {func() error {
				_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "new", Template: ptr("knd"), InstanceType: ptr("huge")})
				return err
			}, "instance_type"},
			"an instance's vars": {func() error {
				_, err := p.create("k", func(r *nstancev1.CreateInstanceRequest) { r.Vars = colour("green") })
				return err
			}, "args.colour"},
			"an instance's type": {func() error {
				_, err := p.create("k", func(r *nstancev1.CreateInstanceRequest) { r.InstanceType = ptr("huge") })
				return err
			}, "instance_type"},
			"the config": {func() error {
				s.replace(`"colour": "red"`, `"colour": "green"`)
				_, err := p.refresh()
				return err
			}, "templates.knd.args.colour"},
		} {
			err := c.ask()
			refused(t, err, codes.InvalidArgument)
			if have := fields(err); !slices.Equal(have, []string{c.want}) {
				t.Errorf("%s: violations of %q, want %q", name, have, c.want)
			}
		}
		if n := len(s.world.Calls(fake.OpCreate)); n != creates || len(s.onDemand()) != 0 {
			t.Errorf("%d creates, before %d; on demand: %v", n, creates, s.onDemand())
		}
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Vars: colour("blue")}); err != nil {
			t.Errorf("what the provider takes: %v", err)
		}
		p.created("k", func(r *nstancev1.CreateInstanceRequest) { r.Vars = colour("blue") })
	})
}

// TestTakeoverOnRefusedArgs: the last accepted config keeps running.
func TestTakeoverOnRefusedArgs(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := colourful(t)
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 2)
		p.ends()
		s.replace(`"colour": "red"`, `"colour": "green"`)
		p = s.start().awaitLeading()
		st := p.configStatus()
		if v := st.GetViolations(); !st.GetRunningApplied() || len(v) != 1 || v[0].GetField() != "templates.knd.args.colour" {
			t.Errorf("status: %v", st)
		}
	})
}
