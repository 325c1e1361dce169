package cli_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/cli"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
)

// TestSizeOverrides: config status, config refresh and the table of groups show the sizes that
// override the config, with the command that drops them.
func TestSizeOverrides(t *testing.T) {
	c := newFixture(t).register()
	own := web(4, 4)
	own.Key, own.IsStatic = "own", false
	s := c.shard("dev-1").setGroups(static(3, 5), own)
	all := []*nstancev1.SizeOverride{
		{Tenant: "default", Group: "web", StaticSize: 5, Size: 3}, {Tenant: "prod", Group: "api", StaticSize: 1, Size: 2},
		{Tenant: "prod", Group: "jobs", StaticSize: 1, Size: 3, Manager: manager},
	}
	s.config = &nstancev1.GetConfigStatusResponse{SizeOverrides: all}
	s.refreshWith = func(*nstancev1.RefreshConfigRequest) (*nstancev1.RefreshConfigResponse, error) {
		return &nstancev1.RefreshConfigResponse{Outcome: nstancev1.RefreshOutcome_REFRESH_OUTCOME_UPDATED, SizeOverrides: all}, nil
	}
	texts := []string{
		"dev-1: group default/web: size 3 overrides the config's 5 (nstance-admin group reset web --shard dev-1 drops it)\n",
		"dev-1: group prod/api: size 2 overrides the config's 1 (nstance-admin group reset api --shard dev-1, " +
			"as an operator of tenant prod, drops it)\n",
		"dev-1: group prod/jobs: size 3 overrides the config's 1 (managed by " + manager + ")\n",
	}
	status := decode[[]configStatus](t, c.run("config", "status", "-o", "json").want(t, cli.ExitOK, texts...).out)
	refreshed := decode[[]admin.Refresh](t, c.run("config", "refresh", "-o", "json").want(t, cli.ExitOK, texts...).out)
	if o := status[0].Message.GetSizeOverrides(); len(o) != 3 || !proto.Equal(o[0], all[0]) {
		t.Errorf("status: %+v", o)
	}
	if o := refreshed[0].SizeOverrides; len(o) != 3 || !proto.Equal(o[0], all[0]) {
		t.Errorf("refresh: %+v", o)
	}
	table := c.run("group", "list").want(t, cli.ExitOK).out
	if !strings.Contains(table, "3 (config: 5)") || strings.Count(table, "(config:") != 1 {
		t.Errorf("table: %s", table)
	}
	s.setGroups(static(5, 5))
	if table := c.run("group", "list").want(t, cli.ExitOK).out; strings.Contains(table, "config:") {
		t.Errorf("table: %s", table)
	}
}
