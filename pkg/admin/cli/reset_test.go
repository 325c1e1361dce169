package cli_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// ResetGroup sets a static group to its static size, and ends a hold.
func (s *shard) ResetGroup(_ context.Context, req *nstancev1.ResetGroupRequest) (*nstancev1.ResetGroupResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[req.GetKey()]
	if g == nil {
		return nil, rpc.NotFound.Errorf("reset group default/%s: no such group", req.GetKey())
	}
	if err := managed(g, req); err != nil {
		return nil, err
	}
	if g.GetIsStatic() {
		g.Size = g.GetStaticSize()
	}
	g.Conditions = nil
	return &nstancev1.ResetGroupResponse{Group: g}, nil
}

func (s *shard) group(key string) (size int32, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[key].GetSize(), len(s.groups[key].GetConditions()) > 0
}

// static returns the static group web with a size that overrides the config's.
func static(size, config int32) *nstancev1.GroupStatus {
	g := web(size, size)
	g.IsStatic, g.StaticSize = true, config
	return g
}

// TestResetOfAnAbortRequiresConfirmation: a reset begins an aborted rollout again, which has to be confirmed.
func TestResetOfAnAbortRequiresConfirmation(t *testing.T) {
	c := newFixture(t).register()
	s := c.populatedShard("dev-1").setGroups(static(2, 2))
	s.groups["web"].Conditions = []*nstancev1.Condition{{Type: "RolloutAborted", Status: "True", Reason: "Refused", Message: "as before"}}
	c.run("group", "reset", "web").want(t, cli.ExitUsage, "dev-1/web: the rollout that was aborted begins again\n", "add --yes")
	if _, aborted := s.group("web"); !aborted {
		t.Error("it was reset")
	}
	c.run("group", "reset", "web", "--yes").want(t, cli.ExitOK)
	if _, aborted := s.group("web"); aborted {
		t.Error("it was not reset")
	}
}

// TestShrinkingResetRequiresConfirmation: a reset that removes instances names the candidates,
// and requires --yes, or a yes on a terminal.
func TestShrinkingResetRequiresConfirmation(t *testing.T) {
	c := newFixture(t).register()
	s := c.populatedShard("dev-1").setGroups(static(2, 1))
	removal := "dev-1/web: size 2 becomes the config's 1, so 1 of these are removed: 2 instances: knd-1, knd-2\n"
	args := []string{"group", "reset", "web", "-o", "json"}
	r := c.run(args...).want(t, cli.ExitUsage, removal, "add --yes")
	if size, _ := s.group("web"); size != 2 || r.out != "" {
		t.Errorf("size %d without confirmation, output %q", size, r.out)
	}
	for _, answer := range []string{"no\n", "\n", "", "yess\n"} {
		r := c.runOnTerminal(strings.NewReader(answer), args...).want(t, cli.ExitFailed, removal, "Type yes", "nothing was changed")
		if size, _ := s.group("web"); size != 2 || r.out != "" {
			t.Errorf("%q: size %d, output %q", answer, size, r.out)
		}
	}
	r = c.runOnTerminal(strings.NewReader("yes\n"), args...).want(t, cli.ExitOK, removal, "Type yes")
	if all := decode[[]group](t, r.out); len(all) != 1 || all[0].Message.GetSize() != 1 {
		t.Errorf("output %+v", all)
	}
	s.setGroups(static(2, 1))
	c.run(append(slices.Clone(args), "--yes")...).want(t, cli.ExitOK, removal)
	if size, _ := s.group("web"); size != 1 {
		t.Errorf("size %d after --yes", size)
	}
	// A smaller size requires confirmation even if it removes no instance that runs now.
	s.setGroups(static(9, 8))
	c.run(args...).want(t, cli.ExitUsage, "dev-1/web: size 9 becomes the config's 8\n", "add --yes")
}

// TestResetWithoutRemovals needs no confirmation: a size that stays or grows, and a held
// dynamic group, which has no static size.
func TestResetWithoutRemovals(t *testing.T) {
	own := web(2, 2)
	own.IsStatic = false
	held := func(g *nstancev1.GroupStatus) *nstancev1.GroupStatus {
		g.Conditions = []*nstancev1.Condition{{Type: "GroupRecordMissing", Status: "True", Message: "its record is missing"}}
		return g
	}
	for name, c := range map[string]struct {
		group *nstancev1.GroupStatus
		size  int32
	}{
		"same size":     {static(2, 2), 2},
		"larger size":   {static(2, 5), 5},
		"held, dynamic": {held(own), 2},
		"held, static":  {held(static(2, 2)), 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t).register()
			s := w.populatedShard("dev-1").setGroups(c.group)
			r := w.run("group", "reset", "web").want(t, cli.ExitOK)
			if size, held := s.group("web"); size != c.size || held || !strings.Contains(r.out, "is reset in dev-1") || !r.quiet() {
				t.Errorf("size %d, held %t; output %q and %q", size, held, r.out, r.errOut)
			}
		})
	}
	t.Run("held, and smaller in the config", func(t *testing.T) {
		w := newFixture(t).register()
		s := w.populatedShard("dev-1").setGroups(held(static(2, 0)))
		w.run("group", "reset", "web").want(t, cli.ExitUsage, "so 2 of these are removed: 2 instances: knd-1, knd-2\n", "add --yes")
		if size, held := s.group("web"); size != 2 || !held {
			t.Errorf("size %d, held %t without confirmation", size, held)
		}
	})
}

// TestResetWithUnreachableShard: nothing is changed without --yes while a shard does not
// respond.
func TestResetWithUnreachableShard(t *testing.T) {
	c := newFixture(t).register()
	s := c.populatedShard("dev-1").setGroups(static(2, 1))
	c.addServer("dev-2", "127.0.0.1:1")
	c.run("group", "reset", "web", "--all-shards", "--timeout", "1s").want(t, cli.ExitFailed)
	if size, _ := s.group("web"); size != 2 {
		t.Errorf("size %d", size)
	}
	c.run("group", "reset", "nope", "--shard", "dev-1").want(t, cli.ExitFailed, "nope")
}
