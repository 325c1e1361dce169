package cli_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/admin/cli"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestWaitHoldsToItsSize: a wait ends as failed once another changes the group, even if the group
// is at that other size, and says who changed what.
func TestWaitHoldsToItsSize(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(1, 1))
	s.events = []*nstancev1.Event{
		{Id: "1.1", Kind: "change", Group: "web", Actor: "spiffe://example/default/operator/oprself",
			Changes: []*nstancev1.EventChange{{Name: "size", From: "1", To: "5"}}},
		{Id: "1.2", Kind: "change", Group: "web", Actor: webOperator, Changes: []*nstancev1.EventChange{{Name: "size", From: "5", To: "3"}}},
		{Id: "1.3", Kind: "create", Group: "web", Actor: "rule:size"},
	}
	s.read = func(n int, g *nstancev1.GroupStatus) {
		if n > 1 {
			g.Size, g.ActualSize = 3, 3
		}
	}
	c.run("group", "scale", "web", "5", "--wait").want(t, cli.ExitFailed,
		"group web of shard dev-1: changed meanwhile by operator opr01h455vb4pex5vsknk084sn02q: from 5 to 3")
}

// TestWaitHoldsToTheSizeItAskedFor: another change came before the response was made, which shows it.
func TestWaitHoldsToTheSizeItAskedFor(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(1, 1))
	s.changed = func(g *nstancev1.GroupStatus) { g.Size, g.ActualSize = 3, 3 }
	c.run("group", "scale", "web", "5", "--wait").want(t, cli.ExitFailed, "changed meanwhile: from 5 to 3")
}

// TestWaitHoldsToItsDefinition: the size stays, but another value is changed; no event tells by
// whom.
func TestWaitHoldsToItsDefinition(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(1, 1))
	s.read = func(_ int, g *nstancev1.GroupStatus) { g.ActualSize, g.InstanceType = 5, "large" }
	r := c.run("group", "scale", "web", "5", "--wait").want(t, cli.ExitFailed, "changed meanwhile: instance_type")
	if strings.Contains(r.errOut, " by ") {
		t.Errorf("it names a caller that is not known: %s", r.errOut)
	}
}

// TestWaitShowsConditions: a condition is shown when it comes and not again, although the numbers
// stay the same; what only repeats the numbers is not.
func TestWaitShowsConditions(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(1, 1))
	s.read = func(n int, g *nstancev1.GroupStatus) {
		g.Conditions = []*nstancev1.Condition{{Type: "Ready", Status: "False", Reason: "NotAtSize", Message: "1 of 2"}}
		switch {
		case n == 2 || n == 3:
			g.Conditions = append(g.Conditions, &nstancev1.Condition{Type: "Degraded", Status: "True", Message: "the disk is full"})
		case n > 3:
			g.ActualSize = 2
		}
	}
	r := c.run("group", "scale", "web", "2", "--wait").want(t, cli.ExitOK, "1 of 2 running, 0 pending, 0 draining\n",
		"1 of 2 running, 0 pending, 0 draining; Degraded: the disk is full\n", "2 of 2 running, 0 pending, 0 draining\n")
	if n := strings.Count(r.errOut, "\n"); n != 3 {
		t.Errorf("%d lines: %s", n, r.errOut)
	}
}

// TestWaitSaysThatFilesAreAwaited: what is missing of an instance is said as a condition.
func TestWaitSaysThatFilesAreAwaited(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(1, 1))
	s.read = func(n int, g *nstancev1.GroupStatus) {
		g.Conditions = []*nstancev1.Condition{{Type: "Ready", Status: "False", Reason: "AwaitingFiles", Message: "1 of 2 without files"}}
		if n > 2 {
			g.ActualSize, g.Conditions = 2, nil
		}
	}
	c.run("group", "scale", "web", "2", "--wait").want(t, cli.ExitOK, "1 of 2 running, 0 pending, 0 draining; Ready: 1 of 2 without files\n",
		"2 of 2 running, 0 pending, 0 draining\n")
}

// TestWaitAfterCutOff: a read whose stream is reset ends no wait.
func TestWaitAfterCutOff(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(2, 2))
	var calls atomic.Int32
	s.fault = func(context.Context) error {
		if calls.Add(1) == 2 {
			return status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL")
		}
		return nil
	}
	c.run("group", "scale", "web", "2", "--wait").want(t, cli.ExitOK, "2 of 2 running")
	if n := calls.Load(); n < 3 {
		t.Errorf("%d calls, want one more after the fault", n)
	}
}

// TestWaitSaysWhatStaysAsked: at the timeout the size stays asked for, also if no read was answered.
func TestWaitSaysWhatStaysAsked(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(3, 3))
	var calls atomic.Int32
	s.fault = func(ctx context.Context) error {
		if calls.Add(1) == 1 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	const text = "web stays asked for 5; 3 run"
	reached := func(r result) bool { calls.Store(0); return strings.Contains(r.errOut, text) }
	c.runUntilTimeout("2s", reached, "group", "scale", "web", "5", "--wait").want(t, cli.ExitFailed, text)
}

// TestInterruptedWait: so it does when the command is interrupted.
func TestInterruptedWait(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(3, 3))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	s.read = func(n int, _ *nstancev1.GroupStatus) {
		if n == 2 {
			interrupt()
		}
	}
	var out, errOut bytes.Buffer
	code := cli.Run(ctx, cli.Env{
		Args: []string{"group", "scale", "web", "5", "--wait"}, Getenv: func(name string) string { return c.env[name] },
		Stdout: &out, Stderr: &errOut, Now: time.Now, Random: rand.Reader, Version: "v0-test",
	})
	r := result{code: code, out: out.String(), errOut: errOut.String()}
	r.want(t, cli.ExitFailed, "the wait was interrupted", "web stays asked for 5; 3 run")
}
