package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin/cli"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestHelpOfEachCommand: the help of each command has an example that is a command, and names the
// variables that set its flags.
func TestHelpOfEachCommand(t *testing.T) {
	available := regexp.MustCompile(`(?m)^  ([a-z-]+) +\S`)
	var leaves int
	var walk func(path []string)
	walk = func(path []string) {
		help := run(t, nil, append(path, "--help")...).want(t, cli.ExitOK).out
		_, children, branch := strings.Cut(help, "Available Commands:\n")
		if branch {
			children, _, _ = strings.Cut(children, "\n\n")
			for _, m := range available.FindAllStringSubmatch(children, -1) {
				if m[1] != "completion" && m[1] != "help" {
					walk(append(path[:len(path):len(path)], m[1]))
				}
			}
			return
		}
		leaves++
		_, examples, ok := strings.Cut(help, "Examples:\n")
		if !ok || !strings.HasPrefix(strings.TrimSpace(examples), "nstance-admin "+strings.Join(path, " ")) {
			t.Errorf("%v: no example of it:\n%s", path, help)
			return
		}
		examples, _, _ = strings.Cut(examples, "\n\n")
		for example := range strings.Lines(examples) {
			args := words(strings.TrimPrefix(strings.TrimSpace(example), "nstance-admin "))
			if r := run(t, nil, append(args, "--help")...); !isHelpOf(r.out, args) {
				t.Errorf("%v: its example %q is no command", path, example)
			}
		}
	}
	walk(nil)
	if leaves < 25 {
		t.Errorf("%d commands", leaves)
	}
	help := run(t, nil, "cluster", "nonce", "--help").out
	for _, want := range []string{"(NSTANCE_ADMIN_STORAGE_BUCKET)", "(NSTANCE_ADMIN_OLD_KEYS)", "default 3h"} {
		if !strings.Contains(help, want) {
			t.Errorf("no %s in %s", want, help)
		}
	}
	if strings.Contains(help, "NSTANCE_ADMIN_OUTPUT") {
		t.Errorf("a variable of another flag: %s", help)
	}
}

func TestVersion(t *testing.T) {
	if r := run(t, nil, "version").want(t, cli.ExitOK); r.out != "nstance-admin version v0-test\n" {
		t.Errorf("output %q", r.out)
	}
	if v := decode[map[string]string](t, run(t, nil, "version", "-o", "json").want(t, cli.ExitOK).out); v["version"] != "v0-test" {
		t.Errorf("output %v", v)
	}
}

// TestDays: durations may have days.
func TestDays(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1")
	c.run("group", "list", "--timeout", "1d").want(t, cli.ExitOK)
	c.run("events", "--since", "7d12h").want(t, cli.ExitOK)
	c.run("cluster", "nonce", "--expiry", "2d").want(t, cli.ExitOK)
	c.run("cluster", "nonce", "--expiry", "8d").want(t, cli.ExitUsage, "--expiry")
	c.run("events", "--since", "7 days").want(t, cli.ExitUsage, "--since", `"30d"`)
}

// TestCompletedNames: arguments and flags are completed with what there is, also while a shard is down,
// and an error completes nothing.
func TestCompletedNames(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(1, 1))
	s.instances = []*nstancev1.InstanceStatus{{Id: newInstance, Group: "web"}}
	s.operators = []*nstancev1.OperatorStatus{{Id: newOperator}}
	c.shard("dev-2")
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"group", "scale", ""}, "web\n"}, {[]string{"group", "status", ""}, "web\n"}, {[]string{"group", "scale", "web", ""}, ""},
		{[]string{"instance", "list", "--group", ""}, "web\n"}, {[]string{"group", "create", "--template", ""}, "knd\n"},
		{[]string{"instance", "status", ""}, newInstance + "\n"}, {[]string{"events", "--instance", ""}, newInstance + "\n"},
		{[]string{"operator", "remove", ""}, newOperator + "\n"}, {[]string{"group", "list", "--shard", ""}, "dev-1\ndev-2\n"},
		{[]string{"cluster", "nonce", "--tenant", ""}, "default\n"}, {[]string{"group", "list", "-o", ""}, "json\nname\ntable\nwide\nyaml\n"},
		{[]string{"group", "status", "web", "-o", ""}, "json\ntable\nyaml\n"},
	} {
		r := c.run(append([]string{"__complete"}, x.args...)...).want(t, cli.ExitOK)
		if names, directive, _ := strings.Cut(r.out, ":"); names != x.want || !strings.HasPrefix(directive, "4") {
			t.Errorf("%q: %q, want %q", x.args, r.out, x.want)
		}
	}
	delete(c.env, "NSTANCE_ADMIN_SERVERS")
	if r := c.run("__complete", "group", "scale", ""); !strings.HasPrefix(r.out, ":4") {
		t.Errorf("without servers: %q", r.out)
	}
}
