package cli_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/yaml"
)

func web(size, actual int32) *nstancev1.GroupStatus {
	vars, _ := structpb.NewStruct(map[string]any{"n": 1})
	return &nstancev1.GroupStatus{
		Key: "web", Tenant: "default", Template: "knd", Size: size, StaticSize: size, ActualSize: actual, IsStatic: true, Etag: "e", Vars: vars,
		Instances: []*nstancev1.GroupInstance{{Id: "i1", ProviderId: "p1", NodeProviderId: "docker:///p1", Zone: "z"}},
		Conditions: []*nstancev1.Condition{{Type: "Degraded", Status: "True", Reason: "ProviderError",
			Message: "no capacity"}},
	}
}

// TestGroupListAsksForWhatItShows: a table has neither instances nor vars, so they are not asked for.
func TestGroupListAsksForWhatItShows(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	s.setGroups(web(3, 3))
	for format, omit := range map[string]bool{"table": true, "wide": true, "name": true, "json": false, "yaml": false} {
		c.run("group", "list", "-o", format).want(t, cli.ExitOK)
		s.mu.Lock()
		if asked := s.lastList; asked.GetOmitInstances() != omit || asked.GetOmitVars() != omit {
			t.Errorf("%s: %v", format, asked)
		}
		s.mu.Unlock()
	}
}

func TestGroupList(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-2").setGroups(web(3, 3))
	c.shard("dev-1").setGroups(web(2, 1))
	for _, flag := range []string{"-o", "--output"} {
		groups := decode[[]group](t, c.run("group", "list", flag, "json").want(t, cli.ExitOK).out)
		if len(groups) != 2 || groups[0].Shard != "dev-1" || groups[0].Message.GetSize() != 2 || groups[0].Message.GetActualSize() != 1 ||
			groups[1].Shard != "dev-2" ||
			!proto.Equal(groups[0].Message, web(2, 1)) {
			t.Errorf("%s json: %+v", flag, groups)
		}
	}
	var groups []group
	if err := yaml.Unmarshal([]byte(c.run("group", "list", "-o", "yaml").want(t, cli.ExitOK).out), &groups); err != nil ||
		len(groups) != 2 || groups[1].Message.GetActualSize() != 3 {
		t.Errorf("yaml: %+v, %v", groups, err)
	}
	table := strings.Split(strings.TrimSpace(c.run("group", "list").want(t, cli.ExitOK).out), "\n")
	if len(table) != 3 || strings.Join(strings.Fields(table[0])[:5], " ") != "SHARD TENANT GROUP SIZE ACTUAL" ||
		strings.Join(strings.Fields(table[1])[:5], " ") != "dev-1 default web 2 1" || !strings.Contains(table[1], "no capacity") {
		t.Errorf("table: %q", table)
	}
	one := decode[[]group](t, c.run("group", "list", "--shard", "dev-2", "-o", "json").want(t, cli.ExitOK).out)
	if len(one) != 1 || one[0].Shard != "dev-2" {
		t.Errorf("one shard: %+v", one)
	}
	if out := c.run("group", "status", "web", "-o", "json").want(t, cli.ExitOK).out; len(decode[[]group](t, out)) != 2 {
		t.Errorf("status: %s", out)
	}
	c.run("group", "status", "wbe").want(t, cli.ExitFailed, "wbe", "did you mean web?", "hint:")
}

// TestEmptyLists: they are printed as lists, not as null.
func TestEmptyLists(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1")
	for _, noun := range []string{"group", "instance"} {
		if out := c.run(noun, "list", "-o", "json").want(t, cli.ExitOK).out; strings.TrimSpace(out) != "[]" {
			t.Errorf("%s: %q", noun, out)
		}
	}
}

// TestShardChoice: commands that read call all shards; those that write require a choice.
func TestShardChoice(t *testing.T) {
	c := newFixture(t).register()
	one, two := c.shard("dev-1").setGroups(web(1, 1)), c.shard("dev-2").setGroups(web(1, 1))
	c.run("group", "scale", "web", "2").want(t, cli.ExitUsage, "there are 2 shards", "--all-shards")
	for _, args := range [][]string{{"group", "scale", "web", "2"}, {"group", "list"}} {
		c.run(append(args, "--shard", "dev-1", "--all-shards")...).want(t, cli.ExitUsage, "pass either --shard or --all-shards, not both")
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
	// A flag takes precedence over the environment.
	out := c.run("group", "scale", "web", "4", "--all-shards", "-o", "json").want(t, cli.ExitOK).out
	if groups := decode[[]group](t, out); len(groups) != 2 || len(one.changes()) != 2 || len(two.changes()) != 2 {
		t.Errorf("all shards: %s", out)
	}
}

func TestScaleSizes(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(1, 1))
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
		t.Errorf("stderr %q", r.errOut)
	}
	c.run("group", "scale", "web", "-x").want(t, cli.ExitUsage, "unknown flag -x")
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

// TestScaleWait: the command waits until the wanted number of instances runs and no other
// change is pending; draining instances are named, and not waited for.
func TestScaleWait(t *testing.T) {
	c := newFixture(t).register()
	g := web(1, 1)
	g.Instances = []*nstancev1.GroupInstance{{Id: "knd-running"}}
	s := c.shard("dev-1").setGroups(g)
	s.instances = []*nstancev1.InstanceStatus{
		{Id: "knd-draining", Group: "web", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING},
		{Id: "knd-on-demand", Group: "web", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING, OnDemand: true},
		{Id: "knd-other", Group: "other", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING},
		{Id: "knd-running", Group: "web", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING},
	}
	s.read = func(n int, g *nstancev1.GroupStatus) {
		switch n {
		case 1:
			g.ActualSize, g.PendingSize = 1, 1 // one more is being created
		case 2:
			g.ActualSize, g.PendingSize = 2, 1 // the wanted number, but one is surplus
		default:
			g.ActualSize, g.PendingSize, g.DrainingSize = 2, 0, 1
		}
	}
	r := c.run("group", "scale", "web", "2", "--wait", "-o", "json").want(t, cli.ExitOK,
		"dev-1/web: 1 of 2 running, 1 pending", "2 of 2 running, 1 pending", "still draining: knd-draining\n")
	if is := decode[[]group](t, r.out)[0].Message; is.GetActualSize() != 2 || is.GetDrainingSize() != 1 || len(is.GetInstances()) != 1 {
		t.Errorf("output %+v", is)
	}
	if s.reads != 4 || s.readsWithInstances != 1 {
		t.Errorf("%d reads, %d of them with instances, want 4 and 1", s.reads, s.readsWithInstances)
	}
}

func TestScaleWaitTimeout(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").setGroups(web(1, 1))
	const message = "wait for group web of shard dev-1: it took longer than --timeout: 1 of 5 run"
	reached := func(r result) bool { return strings.Contains(r.errOut, message) }
	r := c.runUntilTimeout("500ms", reached, "group", "scale", "web", "5", "--wait").
		want(t, cli.ExitFailed, message, "no capacity", "web stays asked for 5")
	if !strings.Contains(r.out, "web") {
		t.Errorf("the change is not shown: %q", r.out)
	}
	// The group is deleted during the wait.
	s := c.shard("dev-2").setGroups(web(1, 1))
	s.read = func(n int, _ *nstancev1.GroupStatus) {
		if n == 2 {
			delete(s.groups, "web")
		}
	}
	c.run("group", "scale", "web", "5", "--wait", "--shard", "dev-2").want(t, cli.ExitFailed, "no such group")
}

// TestPartialFailure: one shard is changed, the other's error is reported.
func TestPartialFailure(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").setGroups(web(1, 1))
	c.shard("dev-2")
	r := c.run("group", "scale", "web", "2", "--all-shards", "-o", "json").want(t, cli.ExitFailed, "shard dev-2: ", "no such group")
	if groups := decode[[]group](t, r.out); len(groups) != 1 || groups[0].Shard != "dev-1" || groups[0].Message.GetSize() != 2 {
		t.Errorf("output %s", r.out)
	}
}

// TestScaleOnCondition: --if-etag makes a change conditional, in one shard. Instances of
// --remove that are already gone are named, and --remove requires one shard too.
func TestScaleOnCondition(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(1, 1))
	c.run("group", "scale", "web", "2", "--if-etag", "x").want(t, cli.ExitFailed, "if_etag")
	c.run("group", "create", "batch", "--template", "knd").want(t, cli.ExitOK)
	c.run("group", "scale", "batch", "3", "--if-etag", "etag-1").want(t, cli.ExitOK)
	c.run("group", "scale", "batch", "4", "--if-etag", "etag-1").want(t, cli.ExitFailed, "if_etag", "etag-2",
		"hint: it was changed meanwhile, perhaps by an earlier attempt of this command")
	c.run("group", "scale", "batch", "3").want(t, cli.ExitOK)
	if have := s.changes(); len(have) != 3 || have[0].IfEtag != nil || have[1].GetIfEtag() != "etag-1" || have[2].IfEtag != nil {
		t.Errorf("requests %v", have)
	}
	r := c.run("group", "scale", "web", "1", "--wait", "--remove", "gone-1,here,gone-2", "-o", "json").
		want(t, cli.ExitOK, "dev-1/web: already gone: gone-1, gone-2; the size is 1\n")
	if groups := decode[[]group](t, r.out); !slices.Equal(groups[0].AlreadyGone, []string{"gone-1", "gone-2"}) {
		t.Errorf("output %s", r.out)
	}
	c.shard("dev-2").setGroups(web(1, 1))
	c.run("group", "scale", "web", "4", "--if-etag", "etag-4", "--all-shards").want(t, cli.ExitUsage, "--if-etag", "--shard")
	before := len(s.changes())
	c.run("group", "scale", "web", "0", "--remove", "here", "--all-shards").want(t, cli.ExitUsage, "--remove", `"here"`, "--shard")
	if have := s.changes(); len(have) != before {
		t.Errorf("requests %v", have[before:])
	}
}

// TestLastError: an instance's last error is shown, unless there is a reason for its removal.
func TestLastError(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	at := timestamppb.Now()
	s.instances = []*nstancev1.InstanceStatus{
		{Id: onDemandID, Group: "web", LastError: "the zone is full", LastErrorAt: at},
		{Id: drainingID, Group: "web", Reason: "create-timeout", LastError: "no VM was created", LastErrorAt: at},
	}
	out := c.run("instance", "list").want(t, cli.ExitOK).out
	if !strings.Contains(out, "the zone is full") || !strings.Contains(out, "create-timeout") || strings.Contains(out, "no VM") {
		t.Errorf("output %s", out)
	}
	i := decode[instance](t, c.run("instance", "status", onDemandID, "-o", "json").want(t, cli.ExitOK).out)
	if i.Message.GetLastError() != "the zone is full" || !proto.Equal(i.Message.GetLastErrorAt(), at) {
		t.Errorf("output %+v", i)
	}
}

func TestGroupCreateAndDelete(t *testing.T) {
	c := newFixture(t).register()
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
		t.Errorf("requests %v", have)
	}
	if out := c.run("group", "delete", "batch", "-o", "json").want(t, cli.ExitOK).out; !strings.Contains(out, `"dev-1"`) {
		t.Errorf("output %s", out)
	}
	c.run("group", "delete", "batch").want(t, cli.ExitFailed, "no such group")
}

func TestInstances(t *testing.T) {
	c := newFixture(t).register()
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
	if i := decode[instance](t, c.run("instance", "status", id, "-o", "json").want(t, cli.ExitOK).out); i.Shard != "dev-2" ||
		i.Message.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING {
		t.Errorf("status: %+v", i)
	}
	c.run("instance", "status", "knd01h455vb4pex5vsknk084sn02r").want(t, cli.ExitFailed, "no such instance")
	c.run("instance", "status", "nonsense").want(t, cli.ExitUsage, "nonsense")

	// An unreachable shard does not delay the answer of the shard that has the instance.
	c.addServer("dev-3", "127.0.0.1:1")
	began := time.Now()
	c.run("instance", "status", id, "--timeout", "5m").want(t, cli.ExitOK)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %s", took)
	}
}

func TestConfigStatus(t *testing.T) {
	c := newFixture(t).register()
	have := &nstancev1.GetConfigStatusResponse{
		Etag: "abc", LastModified: timestamppb.New(time.Unix(1e9, 0)), Size: 42, RunningApplied: true, RestartRequired: []string{"server.bind"},
		Violations: []*nstancev1.Violation{{Field: "groups.default.web.size", Description: "is negative"}},
	}
	c.shard("dev-1").config = have
	out := decode[[]configStatus](t, c.run("config", "status", "-o", "json").want(t, cli.ExitOK).out)
	if len(out) != 1 || !proto.Equal(out[0].Message, have) {
		t.Errorf("status: %+v", out)
	}
	if table := c.run("config", "status").want(t, cli.ExitOK).out; !strings.Contains(table, "2001-09-09T01:46:40Z") ||
		!strings.Contains(table, "1 problems") || !strings.Contains(table, "server.bind") {
		t.Errorf("table: %s", table)
	}
}
