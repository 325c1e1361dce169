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

// onTerminal runs a command whose standard input is a terminal on which answers are
// typed.
func (c *cluster) onTerminal(answers io.Reader, args ...string) result {
	c.t.Helper()
	var out, errOut bytes.Buffer
	code := cli.Run(c.t.Context(), cli.Env{
		Args: args, Getenv: func(name string) string { return c.env[name] }, Stdin: answers, Terminal: true, Stdout: &out, Stderr: &errOut,
		Now: time.Now, Random: rand.Reader, Version: "v0-test",
	})
	return result{code, out.String(), errOut.String()}
}

// populated is a shard whose groups web and jobs have instances of every kind.
func (c *cluster) populated(id string) *shard {
	c.t.Helper()
	s := c.shard(id).have(web(2, 2), &nstancev1.GroupStatus{Key: "jobs", Tenant: "default", Template: "knd"})
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

// TestWhatTakesMachinesAwayAsks: without a terminal it needs --yes, on one it asks, and
// what goes is named; where nothing goes there is no question.
func TestWhatTakesMachinesAwayAsks(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		goes string
		did  func(*shard) bool
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
			w := newCluster(t).register()
			s := w.populated("dev-1")
			args := append(slices.Clone(c.args), "-o", "json")
			r := w.run(args...).want(t, cli.ExitUsage, c.goes, "add --yes")
			if c.did(s) || r.out != "" {
				t.Errorf("done without a word, and printed %q", r.out)
			}
			for _, answer := range []string{"no\n", "\n", "", "yess\n"} {
				r := w.onTerminal(strings.NewReader(answer), args...).want(t, cli.ExitFailed, c.goes, "Type yes", "nothing was changed")
				if c.did(s) || r.out != "" {
					t.Errorf("%q: done, and printed %q", answer, r.out)
				}
			}
			r = w.onTerminal(strings.NewReader("yes\n"), args...).want(t, cli.ExitOK, c.goes, "Type yes")
			if decode[any](t, r.out); !c.did(s) { // nothing but JSON
				t.Error("not done after a yes")
			}
			again := newCluster(t).register()
			s = again.populated("dev-1")
			again.run(append(args, "--yes")...).want(t, cli.ExitOK, c.goes)
			if !c.did(s) {
				t.Error("not done with --yes")
			}
		})
	}
}

// TestNothingGoesUnasked: a group without instances, a size above 0, and an answer that
// does not come.
func TestNothingGoesUnasked(t *testing.T) {
	c := newCluster(t).register()
	s := c.populated("dev-1")
	s.have(&nstancev1.GroupStatus{Key: "empty", Tenant: "default", Template: "knd"})
	c.run("group", "scale", "jobs", "0").want(t, cli.ExitOK) // its on-demand instances stay
	c.run("group", "scale", "empty", "0").want(t, cli.ExitOK)
	c.run("group", "delete", "empty").want(t, cli.ExitOK)
	c.run("group", "scale", "web", "1").want(t, cli.ExitOK)
	before := len(s.changes())
	silent, never := io.Pipe()
	defer never.Close()
	c.onTerminal(silent, "group", "scale", "web", "0", "--timeout", "300ms").want(t, cli.ExitFailed, "no answer", "nothing was changed")
	if n := len(s.changes()); n != before {
		t.Errorf("%d changes", n-before)
	}
	// What can't be listed can't be named.
	c.serves("dev-2", "127.0.0.1:1")
	c.run("group", "scale", "web", "0", "--all-shards", "--timeout", "1s").want(t, cli.ExitFailed, "list what would go")
	if n := len(s.changes()); n != before {
		t.Errorf("%d changes", n-before)
	}
}

// TestCreateOfWhatExists fails and changes nothing; a size that is not given is not sent.
func TestCreateOfWhatExists(t *testing.T) {
	c := newCluster(t).register()
	s := c.populated("dev-1")
	c.run("group", "create", "web", "--template", "knd").want(t, cli.ExitFailed, "there is", "hint: ", "group scale")
	if have := s.changes(); len(have) != 0 || s.groups["web"].GetSize() != 2 {
		t.Errorf("asked for %v, web is %v", have, s.groups["web"])
	}
	c.run("group", "create", "batch", "--template", "knd").want(t, cli.ExitOK)
	if have := s.changes(); len(have) != 1 || have[0].Size != nil || !have[0].GetCreate() || have[0].IfEtag != nil {
		t.Errorf("asked for %v", have)
	}
	for _, size := range []string{"+1", "-1", "", " 1", "0x10", "1.0", "two", "99999999999"} {
		c.run("group", "create", "more", "--template", "knd", "--size="+size).want(t, cli.ExitUsage, "size: ", "want a whole number from 0")
	}
}

// refusing has a shard refuse its config unless these groups' removals are accepted, and
// keeps what it was asked with.
func (s *shard) refusing(groups ...string) *[][]string {
	var asked [][]string
	s.refreshWith = func(req *nstancev1.RefreshConfigRequest) (*nstancev1.RefreshConfigResponse, error) {
		asked = append(asked, req.GetAcceptRemovals())
		refusal := &rpc.PreconditionError{Message: "the config takes away groups"}
		for _, g := range groups {
			if !slices.Contains(req.GetAcceptRemovals(), g) {
				failure := rpc.Failure{Type: rpc.GroupRemoved, Subject: g, Description: "removed, 1 instance goes: knd-1"}
				refusal.Failures = append(refusal.Failures, failure)
			}
		}
		if len(refusal.Failures) > 0 {
			return nil, refusal
		}
		return &nstancev1.RefreshConfigResponse{Outcome: nstancev1.RefreshOutcome_REFRESH_OUTCOME_UPDATED, Etag: "e1"}, nil
	}
	return &asked
}

// TestRefreshAsks before a config takes groups with instances away.
func TestRefreshAsks(t *testing.T) {
	c := newCluster(t).register()
	s := c.shard("dev-1")
	asked := s.refusing("default/db", "default/web")
	r := c.run("config", "refresh", "-o", "json").want(t, cli.ExitUsage, "dev-1: group default/db: removed, 1 instance goes: knd-1",
		"add --yes or --accept-removal default/db --accept-removal default/web")
	if all := decode[[]admin.Refresh](t, r.out); len(all) != 1 || all[0].Outcome != admin.RefreshAwaits || len(all[0].Removals) != 2 ||
		all[0].Removals[0].Group != "default/db" {
		t.Errorf("printed %+v", all)
	}
	c.onTerminal(strings.NewReader("no\n"), "config", "refresh").want(t, cli.ExitFailed, "Type yes", "not confirmed")
	if n := len(*asked); n != 2 {
		t.Errorf("asked %d times: %q", n, *asked)
	}
	both := []string{"default/db", "default/web"}
	for _, run := range []func() result{
		func() result { return c.onTerminal(strings.NewReader("yes\n"), "config", "refresh", "-o", "json") },
		func() result { return c.run("config", "refresh", "--yes", "-o", "json") },
		func() result {
			return c.run("config", "refresh", "--accept-removal", "default/db,default/web", "-o", "json")
		},
	} {
		all := decode[[]admin.Refresh](t, run().want(t, cli.ExitOK).out)
		if last := (*asked)[len(*asked)-1]; len(all) != 1 || all[0].Outcome != admin.RefreshUpdated || !slices.Equal(last, both) {
			t.Errorf("printed %+v, asked with %q", all, last)
		}
	}
	// Those that were accepted by name are not all that it takes.
	c.run("config", "refresh", "--accept-removal", "default/db").want(t, cli.ExitUsage, "add --yes or --accept-removal default/web")
	c.run("config", "refresh", "--accept-removal", "web").want(t, cli.ExitUsage, "--accept-removal", `"web"`, "tenant/group")
	other := c.shard("dev-2").refusing()
	c.run("config", "refresh", "--accept-removal", "default/db", "--all-shards").want(t, cli.ExitUsage, "--shard NAME")
	all := decode[[]admin.Refresh](t, c.run("config", "refresh", "--yes", "--all-shards", "-o", "json").want(t, cli.ExitOK).out)
	updated := len(all) == 2 && all[0].Outcome == admin.RefreshUpdated && all[1].Outcome == admin.RefreshUpdated
	if !updated || len(*other) != 1 || (*other)[0] != nil {
		t.Errorf("printed %+v; the other was asked with %q", all, *other)
	}
}

// TestConfigStatusAwaits: what a config waits for is in the table and in JSON.
func TestConfigStatusAwaits(t *testing.T) {
	c := newCluster(t).register()
	c.shard("dev-1").config = &nstancev1.GetConfigStatusResponse{RunningApplied: true, AwaitsConfirmation: []*nstancev1.GroupRemoval{
		{Tenant: "default", Group: "web", Instances: 3, InstanceIds: []string{"knd-1"}},
		{Tenant: "prod", Group: "api", Emptied: true, Instances: 1},
	}}
	if table := c.run("config", "status").want(t, cli.ExitOK).out; !strings.Contains(table, "awaits confirmation") ||
		!strings.Contains(table, "default/web (3), prod/api (1)") {
		t.Errorf("table: %s", table)
	}
	out := decode[[]admin.ConfigStatus](t, c.run("config", "status", "-o", "json").want(t, cli.ExitOK).out)
	if r := out[0].AwaitsConfirmation; len(r) != 2 || r[0].Instances != 3 || r[0].InstanceIDs[0] != "knd-1" || !r[1].Emptied {
		t.Errorf("status: %+v", out)
	}
}

// TestTerminal: neither a file nor a pipe nor the device that is always empty is one.
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
			t.Errorf("%s is one", name)
		}
	}
	if pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err == nil {
		defer pty.Close()
		if !cli.Terminal(pty) {
			t.Error("a terminal is none")
		}
	}
}
