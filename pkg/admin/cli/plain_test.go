package cli_test

import (
	"context"
	"strings"
	"testing"
	"unicode"

	"github.com/nstance/nstance/pkg/admin/cli"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// hostile is a text that a terminal would not show as it is.
const hostile = "ev\x1b[31mil\nFORGED\r\u009b2J\x7f\u202eabc\u2066\u2028 end"

// TestHostileTexts: texts of servers move no cursor, begin no line and turn no direction; JSON has them in full.
func TestHostileTexts(t *testing.T) {
	c, one, _ := twoShards(t)
	g := web(3, 1)
	g.InstanceType, g.Template = hostile, hostile
	g.Conditions = []*nstancev1.Condition{{Type: "Degraded", Status: "True", Reason: hostile, Message: hostile}}
	one.setGroups(g)
	one.instances = []*nstancev1.InstanceStatus{{Id: newInstance, Group: "web", Reason: hostile, LastError: hostile}}
	one.happened(9, hostile, hostile)
	for _, args := range []string{
		"group list", "group list -o wide", "group list -o name", "group status web", "group explain web", "instance list", "events",
		"events -o yaml", "events -o json", "group list -o json", "group status web -o json",
	} {
		r := c.run(strings.Fields(args+" --shard one")...).want(t, cli.ExitOK)
		checkPlain(t, args, r)
		if args == "group explain web" && strings.Count(r.out, "FORGED") != 4 {
			t.Errorf("%s", r.out)
		}
	}
	r := c.run("group", "list", "-o", "json", "--shard", "one").want(t, cli.ExitOK)
	if got := decode[[]group](t, r.out)[0].Message.GetTemplate(); got != hostile {
		t.Errorf("JSON has %q", got)
	}
	reached := func(r result) bool { return strings.Contains(r.out, "FORGED") }
	for _, args := range []string{"events --follow", "events --follow -o json"} {
		checkPlain(t, args, c.runUntilTimeout("1s", reached, strings.Fields(args+" --shard one")...).want(t, cli.ExitOK))
	}
	one.mu.Lock()
	one.fault = func(context.Context) error { return status.Error(codes.PermissionDenied, hostile) }
	one.mu.Unlock()
	checkPlain(t, "an error", c.run("events", "--shard", "one").want(t, cli.ExitFailed, "ev [31mil"))
}

// checkPlain checks what a command printed.
func checkPlain(t *testing.T, args string, r result) {
	t.Helper()
	text := r.out + r.errOut
	bad := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	if strings.HasSuffix(args, "yaml") { // which can't escape what it takes for printable
		bad = func(r rune) bool { return r != '\n' && unicode.IsControl(r) }
	}
	if n := strings.IndexFunc(text, bad); n >= 0 {
		t.Errorf("%s: %q", args, text[max(0, n-20):min(len(text), n+20)])
	}
	if strings.Contains(text, "\nFORGED") {
		t.Errorf("%s: a forged line in %s", args, text)
	}
}
