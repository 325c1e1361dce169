package cli_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// refreshing returns a shard whose config is refreshed, and what happens before the n-th look at its groups.
func refreshing(t *testing.T, happens func(s *shard, n int), groups ...*nstancev1.GroupStatus) (*fixture, *shard) {
	t.Helper()
	t.Parallel() // since they wait
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(groups...)
	s.config = &nstancev1.GetConfigStatusResponse{Etag: "e1"}
	s.refresh = func() (*nstancev1.RefreshConfigResponse, error) {
		return &nstancev1.RefreshConfigResponse{Outcome: nstancev1.RefreshOutcome_REFRESH_OUTCOME_UPDATED, Etag: "e1"}, nil
	}
	s.listed = func(n int) { happens(s, n) }
	return c, s
}

// rolling returns a group of two instances, of which so many are of its present definition, and have
// their newest files.
func rolling(key string, upToDate, files int32) *nstancev1.GroupStatus {
	return &nstancev1.GroupStatus{Key: key, Tenant: "default", Size: 2, ActualSize: 2, UpToDateSize: upToDate, FilesUpToDateSize: files}
}

// leaving returns a group without a size.
func leaving(key string, actual, draining int32) *nstancev1.GroupStatus {
	return &nstancev1.GroupStatus{Key: key, Tenant: "default", ActualSize: actual, DrainingSize: draining}
}

// held returns a group whose definition is invalid.
func held(key string) *nstancev1.GroupStatus {
	g := rolling(key, 0, 2)
	g.Conditions = []*nstancev1.Condition{{Type: "Disabled", Status: "True", Message: "no such template"}}
	return g
}

// TestRefreshWaits: a refresh ends when all groups have been rolled out, files included, whether they are
// removed, shrink to nothing or stay. Groups that were rolled out at the first look, or come later, don't count.
func TestRefreshWaits(t *testing.T) {
	c, s := refreshing(t, func(s *shard, n int) {
		switch n {
		case 2:
			s.groups["calm"], s.groups["new"] = rolling("calm", 0, 0), rolling("new", 0, 0)
			s.groups["web"] = rolling("web", 2, 1)
			delete(s.groups, "jobs")
		case 3:
			s.groups["web"], s.groups["idle"] = rolling("web", 2, 2), leaving("idle", 0, 2)
			s.groups["web"].PendingSize = 1
		case 4:
			s.groups["web"].PendingSize = 0
		}
	}, rolling("calm", 2, 2), rolling("web", 1, 2), leaving("jobs", 0, 0), leaving("idle", 2, 0))
	s.groups["jobs"].PendingSize = 1
	r := c.run("config", "refresh", "--wait").want(t, cli.ExitOK,
		"dev-1/web: 1 of 2 new, 0 pending, 0 draining\n", "dev-1/web: 2 of 2 new, 0 pending, 0 draining, 1 without the newest files\n",
		"dev-1/web: 2 of 2 new, 1 pending, 0 draining\n", "dev-1/web: 2 of 2 new, 0 pending, 0 draining\n",
		"dev-1/jobs: 0 running, 1 pending, 0 draining\n", "dev-1/jobs: gone\n",
		"dev-1/idle: 2 running, 0 pending, 0 draining, 2 without the newest files\n", "dev-1/idle: 0 running, 0 pending, 2 draining\n")
	if s.lists != 4 || strings.Contains(r.errOut, "calm") || strings.Contains(r.errOut, "new:") || strings.Count(r.errOut, "\n") != 8 {
		t.Errorf("after %d looks: %s", s.lists, r.errOut)
	}
	if !strings.Contains(r.out, "updated") || strings.Contains(r.out, "of 2 new") {
		t.Errorf("output %s", r.out)
	}
}

// TestRefreshWaitSaysWhatRemains: at the timeout.
func TestRefreshWaitSaysWhatRemains(t *testing.T) {
	c, _ := refreshing(t, func(*shard, int) {}, rolling("calm", 2, 2), rolling("web", 0, 2))
	reached := func(r result) bool { return strings.Contains(r.errOut, "of 2 new") }
	c.runUntilTimeout("3s", reached, "config", "refresh", "--wait").want(t, cli.ExitFailed,
		"wait for the config of shard dev-1: it took longer than --timeout: web: 0 of 2 new, 0 pending, 0 draining; "+
			"the config stays in effect, and ending the wait does not stop the rollout")
}

// TestRefreshWaitEnds: a wait ends when it can't come true any more.
func TestRefreshWaitEnds(t *testing.T) {
	for what, e := range map[string]struct {
		happens func(s *shard, n int)
		says    []string
	}{
		"another config": {func(s *shard, _ int) { s.config = &nstancev1.GetConfigStatusResponse{Etag: "e2"} },
			[]string{"wait for the config of shard dev-1: changed meanwhile: the shard runs the config with etag e2, and this wait is for e1"}},
		"disabled": {func(s *shard, n int) {
			if n == 2 { // only then is it all that is left
				s.groups["jobs"] = rolling("jobs", 2, 2)
			}
			s.groups["web"] = held("web")
		}, []string{"dev-1/jobs: 2 of 2 new", "group web stays as it is: Disabled: no such template"}},
		"aborted": {func(s *shard, _ int) {
			delete(s.groups, "jobs")
			s.groups["web"] = rolling("web", 2, 2)
			s.groups["web"].Conditions = []*nstancev1.Condition{{Type: "RolloutAborted", Status: "True", Reason: "Refused", Message: "as before"}}
		}, []string{"group web stays as it is: RolloutAborted: as before"}},
		"no record": {func(s *shard, _ int) {
			delete(s.groups, "jobs")
			s.groups["web"].Conditions = []*nstancev1.Condition{{Type: "GroupRecordMissing", Status: "True", Message: "it is missing"}}
		}, []string{"group web stays as it is: GroupRecordMissing: it is missing"}},
		"no access": {func(s *shard, _ int) {
			s.fault = func(context.Context) error { return status.Error(codes.PermissionDenied, "not for you") }
		}, []string{"not for you"}},
	} {
		t.Run(what, func(t *testing.T) {
			c, _ := refreshing(t, e.happens, rolling("jobs", 0, 2), rolling("web", 0, 2))
			c.run("config", "refresh", "--wait", "--timeout", "1m").want(t, cli.ExitFailed, e.says...)
		})
	}
}

// TestRefreshWaitContinues: a text that the shard refuses, a read that is cut off, and a group without a record
// that only has to grow, end no wait.
func TestRefreshWaitContinues(t *testing.T) {
	c, _ := refreshing(t, func(s *shard, n int) {
		switch n {
		case 1:
			s.config = &nstancev1.GetConfigStatusResponse{Etag: "e2", RunningApplied: true}
		case 2:
			s.fault = func(context.Context) error {
				s.locked(func() { s.fault = nil })
				return status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL")
			}
		case 3:
			s.groups["web"] = rolling("web", 2, 2)
		}
	}, &nstancev1.GroupStatus{Key: "web", Tenant: "default", Size: 2, ActualSize: 1, UpToDateSize: 1, FilesUpToDateSize: 1,
		Conditions: []*nstancev1.Condition{{Type: "GroupRecordMissing", Status: "True", Message: "it is missing"}}})
	c.run("config", "refresh", "--wait").want(t, cli.ExitOK, "web: 1 of 2 new", "web: 2 of 2 new")
}

// TestRefusedRefreshWaitsForNothing: what was not accepted is not waited for.
func TestRefusedRefreshWaitsForNothing(t *testing.T) {
	c, s := refreshing(t, func(*shard, int) {}, rolling("web", 0, 2))
	s.refresh = func() (*nstancev1.RefreshConfigResponse, error) {
		return nil, &rpc.ViolationsError{Message: "invalid config", Violations: []rpc.Violation{{Field: "groups", Description: "wrong"}}}
	}
	if c.run("config", "refresh", "--wait").want(t, cli.ExitFailed, "groups: wrong"); s.lists != 0 {
		t.Errorf("%d looks at the groups", s.lists)
	}
}

// TestRolloutAbort: the shard decides whether there is a rollout to abort.
func TestRolloutAbort(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(3, 3))
	if out := c.run("group", "rollout", "abort", "web").want(t, cli.ExitOK).out; !strings.Contains(out, "RolloutAborted: as before") {
		t.Error(out)
	}
	if out := c.run("group", "rollout", "retry", "web").want(t, cli.ExitOK).out; strings.Contains(out, "RolloutAborted") {
		t.Error(out)
	}
	c.run("group", "rollout", "retry", "wbe").want(t, cli.ExitFailed, "no such group", "web")
	s.groups["web"].UpToDateSize = 3
	c.run("group", "rollout", "abort", "web").want(t, cli.ExitFailed, "shard dev-1", "no rollout to abort")
	c.run("group", "rollout", "abort", "wbe").want(t, cli.ExitFailed, "no such group", "web")
	c.run("group", "rollout", "abort").want(t, cli.ExitUsage, "GROUP")
	c.shard("dev-2").setGroups(web(1, 1))
	c.run("group", "rollout", "abort", "web").want(t, cli.ExitUsage, "there are 2 shards", "--all-shards")
}

// TestRolloutPause: a pause and its end change nothing else of a group, and show it.
func TestRolloutPause(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1").setGroups(web(3, 3))
	for command, paused := range map[string]bool{"pause": true, "resume": false} {
		out := c.run("group", "rollout", command, "web", "-o", "json").want(t, cli.ExitOK).out
		if groups := decode[[]group](t, out); len(groups) != 1 || groups[0].Message.GetSize() != 3 {
			t.Errorf("%s: %s", command, out)
		}
		all := s.changes()
		if got := all[len(all)-1]; got.RolloutPaused == nil || got.GetRolloutPaused() != paused || got.Size != nil || got.Template != nil {
			t.Errorf("%s: %v", command, got)
		}
	}
	s.changed = func(g *nstancev1.GroupStatus) { g.RolloutPaused = false } // as a leader that does not know the field
	c.run("group", "rollout", "pause", "web").want(t, cli.ExitFailed, "shard dev-1", "reports rollout_paused as false", "without this field")
	s.changed = nil
	c.run("group", "rollout", "pause").want(t, cli.ExitUsage, "GROUP")
	c.run("group", "rollout", "pause", "wbe").want(t, cli.ExitFailed, "no such group", "web")
	c.run("group", "rollout", "puase", "web").want(t, cli.ExitUsage, "did you mean pause")
	c.shard("dev-2").setGroups(web(1, 1))
	c.run("group", "rollout", "pause", "web").want(t, cli.ExitUsage, "there are 2 shards", "--all-shards")
}
