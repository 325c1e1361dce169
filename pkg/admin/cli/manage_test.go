package cli_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const manager = "NstanceShardGroup nstance/web--dev-1"

// managed refuses the change of a group that something manages, unless it is forced.
func managed(g *nstancev1.GroupStatus, req interface{ GetForce() bool }) error {
	if g.GetManager() == "" || req.GetForce() {
		return nil
	}
	failure := rpc.Failure{Type: rpc.GroupManaged, Subject: "default/" + g.GetKey(), Description: "managed by " + g.GetManager()}
	return &rpc.PreconditionError{Message: "nothing was changed", Failures: []rpc.Failure{failure}}
}

// TestManagedGroup: what manages a group is listed, and changes from elsewhere need --force.
func TestManagedGroup(t *testing.T) {
	for _, command := range [][]string{
		{"group", "scale", "web", "3"}, {"group", "on-demand", "web", "none"},
		{"group", "reset", "web"}, {"group", "delete", "web", "--yes"},
	} {
		c := newFixture(t).register()
		s := c.shard("dev-1").setGroups(web(2, 2))
		s.groups["web"].Manager = manager
		c.run(command...).want(t, cli.ExitFailed, "shard dev-1: nothing was changed: default/web (managed by "+manager+")")
		if g := s.groups["web"]; g.GetSize() != 2 {
			t.Errorf("%v: %v", command, g)
		}
		listed := c.run("group", "list", "-o", "wide").want(t, cli.ExitOK).out
		if !strings.Contains(listed, "MANAGED BY") || !strings.Contains(listed, manager) {
			t.Errorf("it is listed as %s", listed)
		}
		c.run("group", "rollout", "pause", "web").want(t, cli.ExitOK)
		r := c.run(append(command, "--force")...).want(t, cli.ExitOK)
		said := strings.Contains(r.errOut, "dev-1/web: no longer managed by "+manager+", which may change it back\n")
		if changes := command[1] == "scale" || command[1] == "on-demand"; said != changes {
			t.Errorf("%v says %q", command, r.errOut)
		}
	}
}

// TestManagedGroupWait: after a wait, JSON still has what managed the group before.
func TestManagedGroupWait(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(2, 2))
	s.groups["web"].Manager = manager
	s.changed = func(g *nstancev1.GroupStatus) { g.ActualSize = g.GetSize() }
	out := c.run("group", "scale", "web", "3", "--force", "--wait", "-o", "json").want(t, cli.ExitOK).out
	if !strings.Contains(out, `"managed_before": "`+manager+`"`) {
		t.Error(out)
	}
}
