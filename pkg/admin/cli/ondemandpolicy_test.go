package cli_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/admin/cli"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestGroupOnDemand: the policy is sent when a group is created and when it is changed or
// removed, and is shown.
func TestGroupOnDemand(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	policy := &nstancev1.OnDemand{
		Namespaces: []string{"ci"}, NamespaceLabels: map[string]string{"a": "b"}, InstanceTypes: []string{"large"}, Max: 3, MaxPerNamespace: 2,
	}
	c.run("group", "create", "batch", "--template", "knd", "--on-demand", `{"namespaces": ["ci"], "max": 3}`).want(t, cli.ExitOK)
	c.run("group", "on-demand", "batch",
		`{"namespaces": ["ci"], "namespace_labels": {"a": "b"}, "instance_types": ["large"], "max": 3, "max_per_namespace": 2}`).
		want(t, cli.ExitOK)
	c.run("group", "on-demand", "batch", "none", "--if-etag", "etag-2").want(t, cli.ExitOK)
	have := s.changes()
	if len(have) != 3 || have[0].GetOnDemand().GetMax() != 3 || !have[0].GetCreate() || !proto.Equal(have[1].GetOnDemand(), policy) ||
		have[1].Size != nil || have[2].GetOnDemand() == nil || !proto.Equal(have[2].GetOnDemand(), &nstancev1.OnDemand{}) {
		t.Errorf("requests %v", have)
	}
	c.run("group", "on-demand", "none-such", "none").want(t, cli.ExitFailed, "no such group")

	status := web(1, 1)
	status.OnDemand = policy
	s.setGroups(status)
	out := decode[[]group](t, c.run("group", "status", "web", "-o", "json").want(t, cli.ExitOK).out)
	if len(out) != 1 || !proto.Equal(out[0].Message.GetOnDemand(), policy) {
		t.Errorf("printed %+v", out)
	}
}

// TestInvalidGroupOnDemand: an invalid policy is refused with the reason, and nothing is sent.
func TestInvalidGroupOnDemand(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(1, 1))
	for text, want := range map[string]string{
		``:                                    "want a JSON object with namespaces",
		`null`:                                "want a JSON object with namespaces",
		`[]`:                                  "want a JSON object with namespaces",
		`{"namespaces": ["ci"], "max": 1} {}`: "data after the object",
		`{"namespaces": ["ci"], "maxx": 1}`:   `unknown field "maxx"`,
		`{"namespaces": "ci", "max": 1}`:      "namespaces",
		`{"namespaces": ["ci"], "max": 0}`:    "max: 0: want ",
		`{"max": 1}`:                          "namespaces: required",
		`{}`:                                  "namespaces: required",
	} {
		c.run("group", "on-demand", "web", text).want(t, cli.ExitUsage, "policy: ", want)
		c.run("group", "create", "jobs", "--template", "knd", "--on-demand", text).want(t, cli.ExitUsage, "--on-demand: ", want)
	}
	if have := s.changes(); len(have) > 0 {
		t.Errorf("requests %v", have)
	}
}
