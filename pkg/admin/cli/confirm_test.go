package cli_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// runOnTerminal runs a command whose standard input is a terminal with these answers.
func (c *fixture) runOnTerminal(answers io.Reader, args ...string) result {
	c.t.Helper()
	var out, errOut bytes.Buffer
	code := cli.Run(c.t.Context(), cli.Env{
		Args: args, Getenv: func(name string) string { return c.env[name] }, Stdin: answers, Terminal: true, Stdout: &out, Stderr: &errOut,
		Now: time.Now, Random: rand.Reader, Version: "v0-test",
	})
	return result{code: code, out: out.String(), errOut: errOut.String()}
}

// populatedShard returns a shard whose groups web and jobs have instances of every kind.
func (c *fixture) populatedShard(id string) *shard {
	c.t.Helper()
	s := c.shard(id).setGroups(web(2, 2), &nstancev1.GroupStatus{Key: "jobs", Tenant: "default", Template: "knd"})
	running, draining := nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING, nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING
	s.instances = []*nstancev1.InstanceStatus{
		{Id: "knd-2", Group: "web", Phase: running},
		{Id: "knd-1", Group: "web", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_PENDING},
		{Id: "knd-3", Group: "web", Phase: draining},
		{Id: "knd-4", Group: "web", Phase: running, OnDemand: true},
		{Id: "knd-5", Group: "jobs", Phase: running, OnDemand: true},
	}
	return s
}

// TestRemovalRequiresConfirmation: a command that removes instances names them, and requires
// --yes, or a yes on a terminal.
func TestRemovalRequiresConfirmation(t *testing.T) {
	for name, c := range map[string]struct {
		args      []string
		instances string
		done      func(*shard) bool
	}{
		"scale to 0": {
			[]string{"group", "scale", "web", "0"}, "dev-1/web: 2 instances: knd-1, knd-2\n", func(s *shard) bool { return len(s.changes()) == 1 },
		},
		"delete": {
			[]string{"group", "delete", "jobs"}, "dev-1/jobs: 1 instance: knd-5\n",
			func(s *shard) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.groups["jobs"] == nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t).register()
			s := w.populatedShard("dev-1")
			args := append(slices.Clone(c.args), "-o", "json")
			r := w.run(args...).want(t, cli.ExitUsage, c.instances, "add --yes")
			if c.done(s) || r.out != "" {
				t.Errorf("done without confirmation, output %q", r.out)
			}
			for _, answer := range []string{"no\n", "\n", "", "yess\n"} {
				r := w.runOnTerminal(strings.NewReader(answer), args...).want(t, cli.ExitFailed, c.instances, "Type yes", "nothing was changed")
				if c.done(s) || r.out != "" {
					t.Errorf("%q: done, output %q", answer, r.out)
				}
			}
			r = w.runOnTerminal(strings.NewReader("yes\n"), args...).want(t, cli.ExitOK, c.instances, "Type yes")
			if decode[any](t, r.out); !c.done(s) { // the output is only JSON
				t.Error("not done after yes")
			}
			again := newFixture(t).register()
			s = again.populatedShard("dev-1")
			again.run(append(args, "--yes")...).want(t, cli.ExitOK, c.instances)
			if !c.done(s) {
				t.Error("not done with --yes")
			}
		})
	}
}

// TestChangesWithoutConfirmation: a change that removes no instances requires no confirmation.
// Without an answer, or if the instances can't be listed, nothing is changed.
func TestChangesWithoutConfirmation(t *testing.T) {
	c := newFixture(t).register()
	s := c.populatedShard("dev-1")
	s.setGroups(&nstancev1.GroupStatus{Key: "empty", Tenant: "default", Template: "knd"})
	c.run("group", "scale", "jobs", "0").want(t, cli.ExitOK) // its on-demand instances stay
	c.run("group", "scale", "empty", "0").want(t, cli.ExitOK)
	c.run("group", "delete", "empty").want(t, cli.ExitOK)
	c.run("group", "scale", "web", "1").want(t, cli.ExitOK)
	before := len(s.changes())
	silent, never := io.Pipe()
	defer never.Close()
	c.runOnTerminal(silent, "group", "scale", "web", "0", "--timeout", "300ms").want(t, cli.ExitFailed, "no answer", "nothing was changed")
	if n := len(s.changes()); n != before {
		t.Errorf("%d changes", n-before)
	}
	// The instances to remove can't be listed, and so not be named.
	c.addServer("dev-2", "127.0.0.1:1")
	c.run("group", "scale", "web", "0", "--all-shards", "--timeout", "1s").want(t, cli.ExitFailed, "list the instances to remove")
	if n := len(s.changes()); n != before {
		t.Errorf("%d changes", n-before)
	}
}

// TestCreateOfExistingGroup: it fails and changes nothing. Without --size no size is sent.
func TestCreateOfExistingGroup(t *testing.T) {
	c := newFixture(t).register()
	s := c.populatedShard("dev-1")
	c.run("group", "create", "web", "--template", "knd").want(t, cli.ExitFailed, "there is", "hint: ", "group scale")
	if have := s.changes(); len(have) != 0 || s.groups["web"].GetSize() != 2 {
		t.Errorf("requests %v, web is %v", have, s.groups["web"])
	}
	c.run("group", "create", "batch", "--template", "knd").want(t, cli.ExitOK)
	if have := s.changes(); len(have) != 1 || have[0].Size != nil || !have[0].GetCreate() || have[0].IfEtag != nil {
		t.Errorf("requests %v", have)
	}
	for _, size := range []string{"+1", "-1", "", " 1", "0x10", "1.0", "two", "99999999999"} {
		c.run("group", "create", "more", "--template", "knd", "--size="+size).want(t, cli.ExitUsage, "size: ", "want a whole number from 0")
	}
}

// refusing makes a shard refuse its config unless these groups' removals are accepted, and
// returns the accepted removals of each request.
func (s *shard) refusing(groups ...string) *[][]string {
	var accepted [][]string
	s.refreshWith = func(req *nstancev1.RefreshConfigRequest) (*nstancev1.RefreshConfigResponse, error) {
		accepted = append(accepted, req.GetAcceptRemovals())
		refusal := &rpc.PreconditionError{Message: "the config takes away groups"}
		for _, g := range groups {
			if !slices.Contains(req.GetAcceptRemovals(), g) {
				failure := rpc.Failure{Type: rpc.GroupRemoved, Subject: g, Description: "removed, which deletes 1 instance: knd-1"}
				refusal.Failures = append(refusal.Failures, failure)
			}
		}
		if len(refusal.Failures) > 0 {
			return nil, refusal
		}
		return &nstancev1.RefreshConfigResponse{Outcome: nstancev1.RefreshOutcome_REFRESH_OUTCOME_UPDATED, Etag: "e1"}, nil
	}
	return &accepted
}

// TestRefreshRequiresConfirmation if the config removes groups with instances.
func TestRefreshRequiresConfirmation(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	accepted := s.refusing("default/db", "default/web")
	r := c.run("config", "refresh", "-o", "json").want(t, cli.ExitUsage, "dev-1: group default/db: removed, which deletes 1 instance: knd-1",
		"add --yes or --accept-removal default/db --accept-removal default/web")
	if all := decode[[]admin.Refresh](t, r.out); len(all) != 1 || all[0].Outcome != admin.RefreshAwaits || len(all[0].Removals) != 2 ||
		all[0].Removals[0].Group != "default/db" {
		t.Errorf("output %+v", all)
	}
	c.runOnTerminal(strings.NewReader("no\n"), "config", "refresh").want(t, cli.ExitFailed, "Type yes", "not confirmed")
	if n := len(*accepted); n != 2 {
		t.Errorf("%d requests: %q, want 2", n, *accepted)
	}
	both := []string{"default/db", "default/web"}
	for _, run := range []func() result{
		func() result { return c.runOnTerminal(strings.NewReader("yes\n"), "config", "refresh", "-o", "json") },
		func() result { return c.run("config", "refresh", "--yes", "-o", "json") },
		func() result {
			return c.run("config", "refresh", "--accept-removal", "default/db,default/web", "-o", "json")
		},
	} {
		all := decode[[]admin.Refresh](t, run().want(t, cli.ExitOK).out)
		if last := (*accepted)[len(*accepted)-1]; len(all) != 1 || all[0].Outcome != admin.RefreshUpdated || !slices.Equal(last, both) {
			t.Errorf("output %+v, accepted removals %q", all, last)
		}
	}
	// The other removals still require confirmation.
	c.run("config", "refresh", "--accept-removal", "default/db").want(t, cli.ExitUsage, "add --yes or --accept-removal default/web")
	c.run("config", "refresh", "--accept-removal", "web").want(t, cli.ExitUsage, "--accept-removal", `"web"`, "tenant/group")
	other := c.shard("dev-2").refusing()
	c.run("config", "refresh", "--accept-removal", "default/db", "--all-shards").want(t, cli.ExitUsage, "--shard NAME")
	all := decode[[]admin.Refresh](t, c.run("config", "refresh", "--yes", "--all-shards", "-o", "json").want(t, cli.ExitOK).out)
	updated := len(all) == 2 && all[0].Outcome == admin.RefreshUpdated && all[1].Outcome == admin.RefreshUpdated
	if !updated || len(*other) != 1 || (*other)[0] != nil {
		t.Errorf("output %+v; requests to dev-2 %q", all, *other)
	}
}

// TestConfigStatusAwaitsConfirmation: the table and the JSON show the removals that await
// confirmation.
func TestConfigStatusAwaitsConfirmation(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").config = &nstancev1.GetConfigStatusResponse{RunningApplied: true, AwaitsConfirmation: []*nstancev1.GroupRemoval{
		{Tenant: "default", Group: "web", Instances: 3, InstanceIds: []string{"knd-1"}},
		{Tenant: "prod", Group: "api", Emptied: true, Instances: 1},
	}}
	if table := c.run("config", "status").want(t, cli.ExitOK).out; !strings.Contains(table, "awaiting confirmation") ||
		!strings.Contains(table, "default/web (3), prod/api (1)") {
		t.Errorf("table: %s", table)
	}
	out := decode[[]configStatus](t, c.run("config", "status", "-o", "json").want(t, cli.ExitOK).out)
	if r := out[0].Message.GetAwaitsConfirmation(); len(r) != 2 || r[0].GetInstances() != 3 || r[0].GetInstanceIds()[0] != "knd-1" ||
		!r[1].GetEmptied() {
		t.Errorf("status: %+v", out)
	}
}

// TestTerminal: a pipe, a file and /dev/null are no terminals.
func TestTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, f := range map[string]*os.File{"a pipe": r, "a file": file, os.DevNull: null} {
		if cli.Terminal(f) {
			t.Errorf("%s counts as a terminal", name)
		}
	}
	if pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err == nil {
		defer pty.Close()
		if !cli.Terminal(pty) {
			t.Error("a terminal does not count as one")
		}
	}
}
