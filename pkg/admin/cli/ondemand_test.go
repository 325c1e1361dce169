package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	onDemandID  = "knd01m7y19apkenaskp9fvc72c4st"
	drainingID  = "knd01m7y19apkf60rqv34rg06jy0t"
	drainingID2 = "knd01m7y199gze3dr8samkjd054bp"
)

func TestInstanceCreate(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	created := c.run("instance", "create", "web", "--key", "job-7", "--instance-type", "big", "--vars", `{"a": 1}`, "-o", "json").
		want(t, cli.ExitOK)
	if all := decode[[]instance](t, created.out); len(all) != 1 || all[0].Message.GetId() != onDemandID || !all[0].Message.GetOnDemand() ||
		all[0].Shard != "dev-1" {
		t.Errorf("created %+v", all)
	}
	req := s.created[0]
	if req.GetIdempotencyKey() != "job-7" || req.GetGroup() != "web" || req.GetInstanceType() != "big" || req.GetVars().AsMap()["a"] != 1.0 {
		t.Errorf("request %v", req)
	}
	c.run("instance", "create", "web").want(t, cli.ExitOK, "idempotency key: key")
	if key := s.created[1].GetIdempotencyKey(); !strings.HasPrefix(key, "key") {
		t.Errorf("generated key %q, want the prefix key", key)
	}
	c.run("instance", "create", "web", "--vars", "[]").want(t, cli.ExitUsage, "--vars")
	c.shard("dev-2")
	c.run("instance", "create", "web", "--all-shards").want(t, cli.ExitUsage, "--shard")
	c.run("instance", "create", "web").want(t, cli.ExitUsage, "--shard")
}

// TestInstanceDelete: the shard that has the instance deletes it, although others do not know
// it.
func TestInstanceDelete(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1")
	s := c.shard("dev-2")
	c.run("instance", "create", "web", "--key", "job-7", "--shard", "dev-2").want(t, cli.ExitOK)
	if out := c.run("instance", "delete", onDemandID).want(t, cli.ExitOK).out; !strings.Contains(out, "dev-2") {
		t.Errorf("output %q", out)
	}
	c.run("instance", "delete", "--key", "job-7", "--shard", "dev-2").want(t, cli.ExitOK)
	if len(s.deleted) != 2 || s.deleted[0] != onDemandID || s.deleted[1] != onDemandID {
		t.Errorf("deleted %v", s.deleted)
	}
	c.run("instance", "delete", drainingID).want(t, cli.ExitFailed, "no such instance")
	c.run("instance", "delete", "--key", "job-8", "--shard", "dev-2").want(t, cli.ExitFailed, "job-8")
	c.run("instance", "delete").want(t, cli.ExitUsage, "--key")
	c.run("instance", "delete", onDemandID, "--key", "job-7").want(t, cli.ExitUsage, "either an instance ID or --key")
	c.run("instance", "delete", "nonsense").want(t, cli.ExitUsage, "nonsense")
}

func TestInstanceDrainList(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	s.addDraining(drainingID)
	s.addDraining(drainingID2)
	one := decode[[]instance](t, c.run("instance", "drain", "--id", drainingID2, "-o", "json").want(t, cli.ExitOK).out)
	if len(one) != 1 || one[0].Message.GetId() != drainingID2 {
		t.Errorf("draining with --id: %+v", one)
	}
	c.run("instance", "ack", drainingID2).want(t, cli.ExitOK)
	all := decode[[]instance](t, c.run("instance", "drain", "-o", "json").want(t, cli.ExitOK).out)
	if len(all) != 1 || all[0].Message.GetId() != drainingID {
		t.Errorf("draining: %+v", all)
	}
	c.run("instance", "ack", onDemandID).want(t, cli.ExitFailed, "no such instance")
	c.run("instance", "drain", "true").want(t, cli.ExitUsage, "--")
	c.run("instance", "drain", "--id", "x").want(t, cli.ExitUsage, "--id")
}

// TestInstanceDrainCommand: the command runs for each instance that drains now or begins to
// meanwhile, and again after it fails.
func TestInstanceDrainCommand(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	s.addDraining(drainingID)
	dir := t.TempDir()
	script := filepath.Join(dir, "drain.sh")
	body := `#!/bin/sh
echo "$1 $NSTANCE_INSTANCE_ID $NSTANCE_SHARD $NSTANCE_GROUP $NSTANCE_DRAIN_REASON" >> ` + dir + `/log
[ -e ` + dir + `/again ] && exit 0
touch ` + dir + `/again
exit 3
`
	if err := os.WriteFile(script, []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	r := c.run("instance", "drain", "--once", "--", script).want(t, cli.ExitOK, "exit status 3", "is drained")
	log := strings.Split(strings.TrimSpace(read(t, filepath.Join(dir, "log"))), "\n")
	if want := drainingID + " " + drainingID + " dev-1 web scale-down"; len(log) != 2 || log[0] != want || log[1] != want {
		t.Errorf("the command was run with %q; %s", log, r.errOut)
	}
	if len(s.acked) != 1 || s.acked[0] != drainingID {
		t.Errorf("acknowledged %v", s.acked)
	}
	s.addDraining(drainingID2)
	c.run("instance", "drain", "--once", "--id", onDemandID, "--", script).want(t, cli.ExitOK)
	if len(s.acked) != 1 {
		t.Errorf("an instance other than --id was acknowledged: %v", s.acked)
	}
}

// TestInstanceDrainOfGoneInstance: an instance is gone while the watch is interrupted. The next
// snapshot, which lacks it, ends its command.
func TestInstanceDrainOfGoneInstance(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	s.addDraining(drainingID)
	started := filepath.Join(t.TempDir(), "started")
	go func() {
		for _, err := os.Stat(started); err != nil && t.Context().Err() == nil; _, err = os.Stat(started) {
			time.Sleep(10 * time.Millisecond)
		}
		s.removeUnwatched(drainingID)
	}()
	c.run("instance", "drain", "--once", "--timeout", "2m", "--", "sh", "-c", "touch "+started+"; exec sleep 600").want(t, cli.ExitOK)
}

// TestInstanceDrainRefused: a permanent refusal of the acknowledgement ends the command instead
// of endless retries.
func TestInstanceDrainRefused(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	s.refusal = rpc.Denied.Errorf("not for you")
	s.addDraining(drainingID)
	c.run("instance", "drain", "--", "true").want(t, cli.ExitFailed, "dev-1", "not for you")
}

func TestConfigRefresh(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	s.refresh = func() (*nstancev1.RefreshConfigResponse, error) {
		return &nstancev1.RefreshConfigResponse{
			Outcome: nstancev1.RefreshOutcome_REFRESH_OUTCOME_UPDATED, Etag: "e1", RestartRequired: []string{"server.bind"},
		}, nil
	}
	all := decode[[]admin.Refresh](t, c.run("config", "refresh", "-o", "json").want(t, cli.ExitOK).out)
	if len(all) != 1 || all[0].Outcome != admin.RefreshUpdated || all[0].ETag != "e1" || all[0].RestartRequired[0] != "server.bind" {
		t.Errorf("updated: %+v", all)
	}
	s.refresh = func() (*nstancev1.RefreshConfigResponse, error) {
		return nil, &rpc.ViolationsError{Message: "invalid config",
			Violations: []rpc.Violation{{Field: "groups.default.web.size", Description: "too large"}}}
	}
	r := c.run("config", "refresh", "-o", "json").want(t, cli.ExitFailed, "groups.default.web.size: too large", "stays active")
	if all := decode[[]admin.Refresh](t, r.out); all[0].Outcome != admin.RefreshInvalid ||
		all[0].Violations[0].Field != "groups.default.web.size" {
		t.Errorf("invalid: %+v", all)
	}
	c.shard("dev-2").refresh = func() (*nstancev1.RefreshConfigResponse, error) {
		return &nstancev1.RefreshConfigResponse{Outcome: nstancev1.RefreshOutcome_REFRESH_OUTCOME_UNCHANGED}, nil
	}
	r = c.run("config", "refresh", "--all-shards", "-o", "json").want(t, cli.ExitFailed, "dev-1")
	if all := decode[[]admin.Refresh](t, r.out); len(all) != 2 || all[1].Outcome != admin.RefreshUnchanged {
		t.Errorf("two shards: %+v", all)
	}
}

// lines is a command's standard output, which ends the command when it contains enough.
type lines struct {
	mu     sync.Mutex
	text   bytes.Buffer
	enough func(text string) bool
	end    context.CancelFunc
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if l.enough(l.text.String()) {
		l.end()
	}
	return len(p), nil
}

// watch runs a watch until it has printed all texts.
func watch(t *testing.T, c *fixture, args []string, texts ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &lines{end: cancel, enough: func(text string) bool {
		for _, s := range texts {
			if !strings.Contains(text, s) {
				return false
			}
		}
		return true
	}}
	var errOut bytes.Buffer
	code := cli.Run(ctx, cli.Env{
		Args: append([]string{"watch"}, args...), Getenv: func(name string) string { return c.env[name] }, Stdout: out, Stderr: &errOut,
		Now: time.Now, Version: "v0-test",
	})
	if text := out.text.String(); code != cli.ExitOK || !out.enough(text) {
		t.Fatalf("exit %d, output %s%s, want %q in it", code, text, errOut.String(), texts)
	}
	return out.text.String()
}

func TestWatch(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	s.breaks = 1
	s.addDraining(drainingID)
	watch(t, c, nil, "group web: 1 of 2 running", "group jobs: gone", "instance "+drainingID+" of web: draining (scale-down), deleted by",
		"problem of group web: ProviderError: no room", "problem of group web: CreatesFailing: over",
		"all groups are listed", "all instances are listed",
		"dev-1  waiting: not now")
	s.breaks = 0
	watch(t, c, []string{"-o", "json", "--only", "problems"},
		`"reason":"CreatesFailing","message":"","group":"web","instance_id":"","over":true`)
	text := watch(t, c, []string{"-o", "json", "--only", "groups"}, `"groupGone"`)
	for line := range strings.Lines(text) {
		var e struct{ Kind, Shard string }
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Shard != "dev-1" || e.Kind == admin.EventInstance {
			t.Errorf("%q: %v", line, err)
		}
	}
	s.mu.Lock()
	s.instances = append(s.instances, &nstancev1.InstanceStatus{
		Id: "knd-runs", Group: "web", Phase: nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING,
	})
	s.mu.Unlock()
	if text := watch(t, c, []string{"--only", "instances"}, "all instances are listed"); strings.Contains(text, "running") {
		t.Errorf("a watch of leaving instances printed %s", text)
	}
	c.run("watch", "--all", "--only", "groups,problems").want(t, cli.ExitUsage, "--all", "instances", `"groups, problems"`)
	watch(t, c, []string{"--all", "--only", "instances"}, "instance knd-runs of web: running", "all instances are listed")
	c.run("watch", "--only", "everything").want(t, cli.ExitUsage, "groups, instances, problems")
}

// TestWatchDenied: a permanent error ends the watch.
func TestWatchDenied(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").refusal = rpc.Denied.Errorf("not for you")
	c.run("watch").want(t, cli.ExitFailed, "dev-1", "not for you")
}
