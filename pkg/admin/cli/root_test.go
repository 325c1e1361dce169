package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func TestUsage(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").setGroups(web(1, 1))
	for _, args := range [][]string{
		{"grup"}, {"group", "lst"}, {"group", "list", "more"}, {"--nope"}, {"group", "list", "--nope"}, {"group", "list", "-o", "xml"},
		{"group", "list", "--timeout", "0s"}, {"group", "list", "--timeout", "soon"}, {"group", "list", "--servers", "here"},
		{"config", "validate"},
		{"config", "validate", "x", "-o", "xml"}, {"instance", "status"},
	} {
		r := c.run(args...).want(t, cli.ExitUsage)
		if !strings.HasPrefix(r.errOut, "nstance-admin: ") || strings.Count(r.errOut, "\n") != 1 || r.out != "" {
			t.Errorf("%v: %q, %q", args, r.out, r.errOut)
		}
	}
	c.run("group", "lst").want(t, cli.ExitUsage, `unknown command "lst" for "nstance-admin group"`, "did you mean list?")
	c.run("group", "list", "-o", "xml").want(t, cli.ExitUsage, `--output: "xml" is not valid: want table, wide, name, json or yaml`)
	delete(c.env, "NSTANCE_ADMIN_SERVERS")
	c.run("group", "list").want(t, cli.ExitUsage, "--servers: none given")
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"group"}, {"group", "scale", "--help"}, {"help", "group"}} {
		if r := run(t, nil, args...).want(t, cli.ExitOK); !strings.Contains(r.out, "Usage:") {
			t.Errorf("%v: %s", args, r.out)
		}
	}
	if r := run(t, nil, "--version").want(t, cli.ExitOK); !strings.Contains(r.out, "v0-test") {
		t.Errorf("version: %s", r.out)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if r := run(t, nil, "completion", shell).want(t, cli.ExitOK); !strings.Contains(r.out, "nstance-admin") {
			t.Errorf("%s: %d bytes", shell, len(r.out))
		}
	}
	if r := run(t, nil, "__complete", "group", "").want(t, cli.ExitOK); !strings.Contains(r.out, "scale\t") {
		t.Errorf("completions of group: %s", r.out)
	}
}

// TestUnreachable: a command retries until its timeout, reports meanwhile what it waits for,
// and at the end what to do.
func TestUnreachable(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").setGroups(web(1, 1))
	c.addServer("dev-2", "127.0.0.1:1")
	reached := func(r result) bool { return strings.Contains(r.errOut, "waiting:") && strings.Contains(r.out, "dev-1") }
	r := c.runUntilTimeout("2500ms", reached, "group", "list").want(t, cli.ExitFailed,
		"waiting: shard dev-2: ", "refused", "nstance-admin: shard dev-2: no leader answered in time", "hint: ")
	if r.took < 2*time.Second || r.took > 2*time.Minute {
		t.Errorf("took %s", r.took)
	}
	if !strings.Contains(r.out, "dev-1") {
		t.Errorf("the other shard's groups are not shown: %s", r.out)
	}
}

// TestUnreachableBriefly: without --timeout, a command that shows what shards have does not wait for the
// next leader of a shard for long, says once that it waits, and asks no more of the shard.
func TestUnreachableBriefly(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").setGroups(web(1, 1))
	c.addServer("dev-2", "127.0.0.1:1")
	delete(c.env, "NSTANCE_ADMIN_TIMEOUT")
	r := c.run("group", "explain", "web").want(t, cli.ExitFailed, "waiting: shard dev-2: ", "no leader answered in time", "--timeout")
	if !strings.Contains(r.out, "Group web of shard dev-1 is at size") {
		t.Errorf("the group of the other shard is not explained: %s", r.out)
	}
	if waits, errs := strings.Count(r.errOut, "waiting:"), strings.Count(r.errOut, "shard dev-"); waits != 1 || errs != 2 {
		t.Errorf("%d messages about the wait, %d errors in all: %s", waits, errs, r.errOut)
	}
	if !strings.Contains(r.errOut, "hint: ") || !strings.Contains(r.errOut, "--timeout 1m looks for a leader for longer") {
		t.Errorf("no hint: %s", r.errOut)
	}
	c.run("group", "list", "--timeout", "soon").want(t, cli.ExitUsage, `--timeout: "soon" is not valid: want a duration above 0, such as 30s`)
	c.run("group", "list", "--timeout", "").want(t, cli.ExitUsage, `--timeout: "" is not valid`)
	c.env["NSTANCE_ADMIN_TIMEOUT"] = "0s"
	c.run("group", "list").want(t, cli.ExitUsage, `--timeout: "0s" is not valid`)
}

// TestNotLeader: a standby's address of the leader is followed.
func TestNotLeader(t *testing.T) {
	c := newFixture(t).register()
	leader := c.shard("dev-1").setGroups(web(1, 1))
	delete(c.env, "NSTANCE_ADMIN_SERVERS")
	standby := c.shard("dev-1")
	standby.leads, standby.leader = false, leader.addr
	if r := c.run("group", "list").want(t, cli.ExitOK); !strings.Contains(r.out, "web") || !r.quiet() {
		t.Errorf("%s%s", r.out, r.errOut)
	}
	// No server leads for a moment.
	standby.mu.Lock()
	standby.leader = ""
	standby.mu.Unlock()
	timer := time.AfterFunc(300*time.Millisecond, func() {
		standby.mu.Lock()
		defer standby.mu.Unlock()
		standby.leads = true
		standby.groups = map[string]*nstancev1.GroupStatus{"web": web(7, 7)}
	})
	defer timer.Stop()
	if r := c.run("group", "list").want(t, cli.ExitOK); !strings.Contains(r.out, "7") {
		t.Errorf("%s%s", r.out, r.errOut)
	}
}

func TestIdentityRefusals(t *testing.T) {
	c := newFixture(t)
	c.shard("dev-1").setGroups(web(1, 1))
	c.run("group", "list").want(t, cli.ExitFailed, "no identity", "register-operator")

	// The CA of another cluster's identity does not verify the server.
	other := newFixture(t).register()
	c.env["NSTANCE_ADMIN_IDENTITY_DIR"] = other.env["NSTANCE_ADMIN_IDENTITY_DIR"]
	c.run("group", "list", "--timeout", "500ms").want(t, cli.ExitFailed, "shard dev-1")

	folder := other.env["NSTANCE_ADMIN_IDENTITY_DIR"]
	if err := os.WriteFile(filepath.Join(folder, "identity.crt"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.run("group", "list").want(t, cli.ExitFailed, "load identity: identity.crt")
}

// TestServerOfAnotherShard: a server's certificate must be of the shard that it is called as.
func TestServerOfAnotherShard(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(1, 1))
	c.env["NSTANCE_ADMIN_SERVERS"] = "dev-2=" + s.addr
	c.run("group", "list", "--timeout", "500ms").want(t, cli.ExitFailed, "shard dev-2")
}

func TestConfigValidate(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	body := read(t, "../../../examples/config.jsonc")
	for path, text := range map[string]string{good: body, bad: strings.ReplaceAll(body, `"cluster"`, `"cluster": {}, "clster"`)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := run(t, nil, "config", "validate", good).want(t, cli.ExitOK); !strings.Contains(r.out, "is valid") {
		t.Errorf("output %s", r.out)
	}
	if v := decode[map[string]any](t, run(t, nil, "config", "validate", good, "-o", "json").want(t, cli.ExitOK).out); v["valid"] != true {
		t.Errorf("output %v", v)
	}
	run(t, nil, "config", "validate", bad).want(t, cli.ExitFailed, "bad is not valid", "clster", "cluster.id")
	r := run(t, nil, "config", "validate", filepath.Join(dir, "none")).want(t, cli.ExitUsage, "none")
	if strings.Contains(r.errOut, "identity") {
		t.Errorf("a misleading hint: %s", r.errOut)
	}
}
