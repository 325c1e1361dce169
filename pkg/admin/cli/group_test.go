package cli_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/cli"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/yaml"
)

func web(size, actual int32) *nstancev1.GroupStatus {
	vars, _ := structpb.NewStruct(map[string]any{"n": 1})
	return &nstancev1.GroupStatus{
		Key: "web", Tenant: "default", Template: "knd", Size: size, StaticSize: size, ActualSize: actual, IsStatic: true, Etag: "e", Vars: vars,
		ProviderIds: []string{"p1"},
		Instances:   []*nstancev1.GroupInstance{{Id: "i1", ProviderId: "p1", NodeProviderId: "docker:///p1", Zone: "z"}},
		Conditions: []*nstancev1.Condition{{Type: "Degraded", Status: true, Reason: "ProviderError",
			Message: "no room"}},
	}
}

func TestGroupList(t *testing.T) {
	c := newCluster(t).register()
	c.shard("dev-2").have(web(3, 3))
	c.shard("dev-1").have(web(2, 1))
	machine := admin.GroupInstance{ID: "i1", ProviderID: "p1", NodeProviderID: "docker:///p1", Zone: "z"}
	for _, flag := range []string{"-o", "--output"} {
		groups := decode[[]admin.Group](t, c.run("group", "list", flag, "json").want(t, cli.ExitOK).out)
		if len(groups) != 2 || groups[0].Shard != "dev-1" || groups[0].Size != 2 || groups[0].ActualSize != 1 || groups[1].Shard != "dev-2" ||
			groups[0].Vars["n"] != 1.0 || groups[0].ProviderIDs[0] != "p1" || groups[0].Instances[0] != machine ||
			groups[0].Conditions[0].Message != "no room" {
			t.Errorf("%s json: %+v", flag, groups)
		}
	}
	var groups []admin.Group
	if err := yaml.Unmarshal([]byte(c.run("group", "list", "-o", "yaml").want(t, cli.ExitOK).out), &groups); err != nil ||
		len(groups) != 2 || groups[1].ActualSize != 3 {
		t.Errorf("yaml: %+v, %v", groups, err)
	}
	table := strings.Split(strings.TrimSpace(c.run("group", "list").want(t, cli.ExitOK).out), "\n")
	if len(table) != 3 || strings.Join(strings.Fields(table[0])[:5], " ") != "SHARD TENANT GROUP SIZE ACTUAL" ||
		strings.Join(strings.Fields(table[1])[:5], " ") != "dev-1 default web 2 1" || !strings.Contains(table[1], "no room") {
		t.Errorf("table: %q", table)
	}
	one := decode[[]admin.Group](t, c.run("group", "list", "--shard", "dev-2", "-o", "json").want(t, cli.ExitOK).out)
	if len(one) != 1 || one[0].Shard != "dev-2" {
		t.Errorf("one shard: %+v", one)
	}
	if out := c.run("group", "status", "web", "-o", "json").want(t, cli.ExitOK).out; len(decode[[]admin.Group](t, out)) != 2 {
		t.Errorf("status: %s", out)
	}
	c.run("group", "status", "wbe").want(t, cli.ExitFailed, "wbe", "have: web", "hint:")
}

// TestEmptyLists are lists, not null.
func TestEmptyLists(t *testing.T) {
	c := newCluster(t).register()
	c.shard("dev-1")
	for _, noun := range []string{"group", "instance"} {
		if out := c.run(noun, "list", "-o", "json").want(t, cli.ExitOK).out; strings.TrimSpace(out) != "[]" {
			t.Errorf("%s: %q", noun, out)
		}
	}
}

// TestShardChoice: what reads asks all shards, what writes wants to be told.
func TestShardChoice(t *testing.T) {
	c := newCluster(t).register()
	one, two := c.shard("dev-1").have(web(1, 1)), c.shard("dev-2").have(web(1, 1))
	c.run("group", "scale", "web", "2").want(t, cli.ExitUsage, "there are 2 shards", "--all-shards")
	for _, args := range [][]string{{"group", "scale", "web", "2"}, {"group", "list"}} {
		c.run(append(args, "--shard", "dev-1", "--all-shards")...).want(t, cli.ExitUsage, "--shard and --all-shards exclude each other")
	}
	c.run("group", "list", "--shard", "dev-3").want(t, cli.ExitUsage, `--shard: no such shard "dev-3" (have: dev-1, dev-2)`)
	if len(one.changes())+len(two.changes()) > 0 {
		t.Error("a usage error changed a group")
	}
	c.run("group", "scale", "web", "2", "--shard", "dev-2").want(t, cli.ExitOK)
	if len(one.changes()) != 0 || len(two.changes()) != 1 {
		t.Errorf("changes: %v, %v", one.changes(), two.changes())
	}
	c.env["NSTANCE_ADMIN_SHARD"] = "dev-1"
	c.run("group", "scale", "web", "3").want(t, cli.ExitOK)
	if len(one.changes()) != 1 {
		t.Errorf("the environment's shard: %v", one.changes())
	}
	// A flag stands above the environment.
	out := c.run("group", "scale", "web", "4", "--all-shards", "-o", "json").want(t, cli.ExitOK).out
	if groups := decode[[]admin.Group](t, out); len(groups) != 2 || len(one.changes()) != 2 || len(two.changes()) != 2 {
		t.Errorf("all shards: %s", out)
	}
}

func TestScaleSizes(t *testing.T) {
	c := newCluster(t).register()
	s := c.shard("dev-1").have(web(1, 1))
	for _, args := range [][]string{
		{"web", "-1"}, {"web", "-1", "--wait"}, {"--wait", "web", "-12"}, {"web", "--", "-1"}, {"web", "two"}, {"web", "1.5"}, {"web", ""},
		{"web", "99999999999"}, {"web", "+1"}, {"web", "+0"}, {"web", " 1"}, {"web", "1 "}, {"web", "0x1"}, {"web", "1_0"}, {"web", "１"},
	} {
		r := c.run(append([]string{"group", "scale"}, args...)...).want(t, cli.ExitUsage, "size: ", "want a whole number from 0")
		if strings.Count(r.errOut, "\n") != 1 || strings.Contains(r.errOut, "flag") {
			t.Errorf("%v: %q", args, r.errOut)
		}
	}
	if r := c.run("group", "scale", "web", "-1").want(t, cli.ExitUsage); !strings.Contains(r.errOut, `"-1"`) {
		t.Errorf("said %q", r.errOut)
	}
	c.run("group", "scale", "web", "-x").want(t, cli.ExitUsage, "unknown shorthand flag")
	c.run("group", "scale", "web").want(t, cli.ExitUsage)
	c.run("group", "scale", "web", "1", "2").want(t, cli.ExitUsage)
	c.run("group", "scale", "web", "1000000000").want(t, cli.ExitFailed, "size", "at most 1000")
	c.run("group", "scale", "wbe", "1").want(t, cli.ExitFailed, "shard dev-1", "no such group", "hint: ")
	if len(s.changes()) != 0 {
		t.Errorf("changed: %v", s.changes())
	}
	c.run("group", "scale", "web", "0", "--remove", "a,b", "--remove", "c").want(t, cli.ExitOK)
	if have := s.changes(); len(have) != 1 || have[0].Size == nil || have[0].GetSize() != 0 || len(have[0].GetRemove()) != 3 ||
		have[0].Template != nil {
		t.Errorf("changed: %v", have)
	}
}

// TestScaleWait: it waits until as many run as are wanted and nothing else is on
// its way; draining ones are named and not waited for.
func TestScaleWait(t *testing.T) {
	c := newCluster(t).register()
	s := c.shard("dev-1").have(web(1, 1))
	s.instances = []*nstancev1.InstanceStatus{
		{Id: "knd-draining", Group: "web", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING},
		{Id: "knd-on-demand", Group: "web", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING, OnDemand: true},
		{Id: "knd-other", Group: "other", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING},
		{Id: "knd-running", Group: "web", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING},
	}
	s.listed = func(n int, g *nstancev1.GroupStatus) {
		switch n {
		case 1:
			g.ActualSize, g.PendingSize = 1, 1 // one more is being made
		case 2:
			g.ActualSize, g.PendingSize = 2, 1 // as many as wanted, but one is still to go
		default:
			g.ActualSize, g.PendingSize, g.DrainingSize = 2, 0, 1
		}
	}
	r := c.run("group", "scale", "web", "2", "--wait", "-o", "json").want(t, cli.ExitOK,
		"dev-1/web: 1 of 2 running, 1 on their way", "2 of 2 running, 1 on their way", "still draining: knd-draining\n")
	if groups := decode[[]admin.Group](t, r.out); groups[0].ActualSize != 2 || groups[0].DrainingSize != 1 {
		t.Errorf("printed %+v", groups)
	}
	if s.listings != 3 {
		t.Errorf("asked %d times", s.listings)
	}
}

func TestScaleWaitTimeout(t *testing.T) {
	c := newCluster(t).register()
	c.shard("dev-1").have(web(1, 1))
	r := c.run("group", "scale", "web", "5", "--wait", "--timeout", "500ms").want(t, cli.ExitFailed,
		"wait for group web of shard dev-1: 1 of 5 run", "no room", "deadline exceeded")
	if !strings.Contains(r.out, "web") {
		t.Errorf("what was done is not shown: %q", r.out)
	}
	// The group goes away while it is waited for.
	s := c.shard("dev-2").have(web(1, 1))
	s.listed = func(n int, g *nstancev1.GroupStatus) {
		if n == 2 {
			delete(s.groups, "web")
			g.Key = "other"
		}
	}
	c.run("group", "scale", "web", "5", "--wait", "--shard", "dev-2").want(t, cli.ExitFailed, "no such group")
}

// TestPartialFailure: one shard is changed, the other says why not.
func TestPartialFailure(t *testing.T) {
	c := newCluster(t).register()
	c.shard("dev-1").have(web(1, 1))
	c.shard("dev-2")
	r := c.run("group", "scale", "web", "2", "--all-shards", "-o", "json").want(t, cli.ExitFailed, "shard dev-2: ", "no such group")
	if groups := decode[[]admin.Group](t, r.out); len(groups) != 1 || groups[0].Shard != "dev-1" || groups[0].Size != 2 {
		t.Errorf("printed %s", r.out)
	}
}

// TestScaleOnCondition: a change may be held to what its caller has seen, in one
// shard; and who has left already is named. Who leaves is said to one shard as well.
func TestScaleOnCondition(t *testing.T) {
	c := newCluster(t).register()
	s := c.shard("dev-1").have(web(1, 1))
	c.run("group", "scale", "web", "2", "--if-etag", "x").want(t, cli.ExitFailed, "if_etag")
	c.run("group", "create", "batch", "--template", "knd").want(t, cli.ExitOK)
	c.run("group", "scale", "batch", "3", "--if-etag", "etag-1").want(t, cli.ExitOK)
	c.run("group", "scale", "batch", "4", "--if-etag", "etag-1").want(t, cli.ExitFailed, "if_etag", "etag-2",
		"hint: it has changed meanwhile, perhaps by an earlier try of this very command")
	c.run("group", "scale", "batch", "3").want(t, cli.ExitOK)
	if have := s.changes(); len(have) != 3 || have[0].IfEtag != nil || have[1].GetIfEtag() != "etag-1" || have[2].IfEtag != nil {
		t.Errorf("asked for %v", have)
	}
	r := c.run("group", "scale", "web", "1", "--wait", "--remove", "gone-1,here,gone-2", "-o", "json").
		want(t, cli.ExitOK, "dev-1/web: gone already: gone-1, gone-2\n")
	if groups := decode[[]admin.Group](t, r.out); !slices.Equal(groups[0].AlreadyGone, []string{"gone-1", "gone-2"}) {
		t.Errorf("printed %s", r.out)
	}
	c.shard("dev-2").have(web(1, 1))
	c.run("group", "scale", "web", "4", "--if-etag", "etag-4", "--all-shards").want(t, cli.ExitUsage, "--if-etag", "--shard")
	before := len(s.changes())
	c.run("group", "scale", "web", "0", "--remove", "here", "--all-shards").want(t, cli.ExitUsage, "--remove", `"here"`, "--shard")
	if have := s.changes(); len(have) != before {
		t.Errorf("asked for %v", have[before:])
	}
}

// TestLastError: what the last step failed for is shown, unless there is a reason why
// the instance goes.
func TestLastError(t *testing.T) {
	c := newCluster(t).register()
	s := c.shard("dev-1")
	at := timestamppb.Now()
	s.instances = []*nstancev1.InstanceStatus{
		{Id: onDemandID, Group: "web", LastError: "the zone is full", LastErrorAt: at},
		{Id: drainingID, Group: "web", Reason: "create-timeout", LastError: "no machine was made", LastErrorAt: at},
	}
	out := c.run("instance", "list").want(t, cli.ExitOK).out
	if !strings.Contains(out, "the zone is full") || !strings.Contains(out, "create-timeout") || strings.Contains(out, "no machine") {
		t.Errorf("printed %s", out)
	}
	i := decode[admin.Instance](t, c.run("instance", "status", onDemandID, "-o", "json").want(t, cli.ExitOK).out)
	if i.LastError != "the zone is full" || i.LastErrorAt == nil || !i.LastErrorAt.Equal(at.AsTime()) {
		t.Errorf("printed %+v", i)
	}
}

func TestGroupCreateAndDelete(t *testing.T) {
	c := newCluster(t).register()
	s := c.shard("dev-1")
	c.run("group", "create", "batch").want(t, cli.ExitUsage, "--template")
	c.run("group", "create", "batch", "--template", "knd", "--size", "-1").want(t, cli.ExitUsage, "size", "-1")
	c.run("group", "create", "batch", "--template", "knd", "--vars", "[1]").want(t, cli.ExitUsage, "--vars")
	c.run("group", "create", "batch", "--template", "knd", "--size", "2", "--vars", `{"a": {"b": 1}}`, "--instance-type", "",
		"--max-surge", "5%").
		want(t, cli.ExitOK)
	have := s.changes()
	if len(have) != 1 || have[0].GetTemplate() != "knd" || have[0].GetSize() != 2 || have[0].InstanceType == nil ||
		have[0].SubnetPool != nil || have[0].GetMaxSurge() != "5%" ||
		have[0].GetVars().AsMap()["a"].(map[string]any)["b"] != 1.0 {
		t.Errorf("asked for %v", have)
	}
	if out := c.run("group", "delete", "batch", "-o", "json").want(t, cli.ExitOK).out; !strings.Contains(out, `"dev-1"`) {
		t.Errorf("printed %s", out)
	}
	c.run("group", "delete", "batch").want(t, cli.ExitFailed, "no such group")
}

func TestInstances(t *testing.T) {
	c := newCluster(t).register()
	const id = "knd01h455vb4pex5vsknk084sn02q"
	c.shard("dev-1")
	s := c.shard("dev-2")
	s.instances = []*nstancev1.InstanceStatus{{
		Id: id, Tenant: "default", Group: "web", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING, Connected: true,
		UnhealthyReason: "vm-down",
		CreatedAt:       timestamppb.New(time.Now().Add(-time.Hour)),
	}}
	table := c.run("instance", "list").want(t, cli.ExitOK).out
	for _, want := range []string{"dev-2", id, "running", "true", "1h0m", "vm-down"} {
		if !strings.Contains(table, want) {
			t.Errorf("table without %q: %s", want, table)
		}
	}
	if i := decode[admin.Instance](t, c.run("instance", "status", id, "-o", "json").want(t, cli.ExitOK).out); i.Shard != "dev-2" ||
		i.Phase != "running" {
		t.Errorf("status: %+v", i)
	}
	c.run("instance", "status", "knd01h455vb4pex5vsknk084sn02r").want(t, cli.ExitFailed, "no such instance")
	c.run("instance", "status", "nonsense").want(t, cli.ExitUsage, "nonsense")

	// A shard that is down does not keep the answer of the one that has it.
	c.serves("dev-3", "127.0.0.1:1")
	began := time.Now()
	c.run("instance", "status", id, "--timeout", "5m").want(t, cli.ExitOK)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %s", took)
	}
}

func TestConfigStatus(t *testing.T) {
	c := newCluster(t).register()
	c.shard("dev-1").config = &nstancev1.GetConfigStatusResponse{
		Etag: "abc", LastModified: timestamppb.New(time.Unix(1e9, 0)), Size: 42, RunningApplied: true, RestartRequired: []string{"server.bind"},
		Violations: []*nstancev1.Violation{{Field: "groups.default.web.size", Description: "is negative"}},
	}
	out := decode[[]admin.ConfigStatus](t, c.run("config", "status", "-o", "json").want(t, cli.ExitOK).out)
	if len(out) != 1 || out[0].ETag != "abc" || out[0].Size != 42 || !out[0].RunningApplied ||
		out[0].Violations[0].Field != "groups.default.web.size" {
		t.Errorf("status: %+v", out)
	}
	if table := c.run("config", "status").want(t, cli.ExitOK).out; !strings.Contains(table, "2001-09-09T01:46:40Z") ||
		!strings.Contains(table, "1 problems") || !strings.Contains(table, "server.bind") {
		t.Errorf("table: %s", table)
	}
}
