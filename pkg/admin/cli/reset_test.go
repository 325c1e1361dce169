package cli_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// ResetGroup gives a static group its static size, and ends a hold.
func (s *shard) ResetGroup(_ context.Context, req *nstancev1.ResetGroupRequest) (*nstancev1.ResetGroupResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[req.GetKey()]
	if g == nil {
		return nil, rpc.NotFound.Errorf("reset group default/%s: no such group", req.GetKey())
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

// static is web of the static config, with a size that overrides the config's.
func static(size, config int32) *nstancev1.GroupStatus {
	g := web(size, size)
	g.IsStatic, g.StaticSize = true, config
	return g
}

// TestResetThatShrinksAsks: without a terminal it needs --yes, on one it asks, and what
// may go is named.
func TestResetThatShrinksAsks(t *testing.T) {
	c := newCluster(t).register()
	s := c.populated("dev-1").have(static(2, 1))
	goes := "dev-1/web: size 2 becomes the config's 1, so 1 of these go: 2 instances: knd-1, knd-2\n"
	args := []string{"group", "reset", "web", "-o", "json"}
	r := c.run(args...).want(t, cli.ExitUsage, goes, "add --yes")
	if size, _ := s.group("web"); size != 2 || r.out != "" {
		t.Errorf("size %d without a yes, and printed %q", size, r.out)
	}
	for _, answer := range []string{"no\n", "\n", "", "yess\n"} {
		r := c.onTerminal(strings.NewReader(answer), args...).want(t, cli.ExitFailed, goes, "Type yes", "nothing was changed")
		if size, _ := s.group("web"); size != 2 || r.out != "" {
			t.Errorf("%q: size %d, and printed %q", answer, size, r.out)
		}
	}
	r = c.onTerminal(strings.NewReader("yes\n"), args...).want(t, cli.ExitOK, goes, "Type yes")
	if all := decode[[]admin.Group](t, r.out); len(all) != 1 || all[0].Size != 1 {
		t.Errorf("printed %+v", all)
	}
	s.have(static(2, 1))
	c.run(append(slices.Clone(args), "--yes")...).want(t, cli.ExitOK, goes)
	if size, _ := s.group("web"); size != 1 {
		t.Errorf("size %d after --yes", size)
	}
	// A smaller size is asked about although nothing that is there now goes by it.
	s.have(static(9, 8))
	c.run(args...).want(t, cli.ExitUsage, "dev-1/web: size 9 becomes the config's 8\n", "add --yes")
}

// TestResetThatShrinksNothing is done without a question: a size that stays or grows, and
// a group of its own that is held, which has no static size.
func TestResetThatShrinksNothing(t *testing.T) {
	own := web(2, 2)
	own.IsStatic = false
	held := func(g *nstancev1.GroupStatus) *nstancev1.GroupStatus {
		g.Conditions = []*nstancev1.Condition{{Type: "GroupRecordMissing", Status: true, Message: "its record is missing"}}
		return g
	}
	for name, c := range map[string]struct {
		group *nstancev1.GroupStatus
		size  int32
	}{
		"same size":      {static(2, 2), 2},
		"larger size":    {static(2, 5), 5},
		"held":           {held(own), 2},
		"held, a static": {held(static(2, 2)), 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t).register()
			s := w.populated("dev-1").have(c.group)
			r := w.run("group", "reset", "web").want(t, cli.ExitOK)
			if size, held := s.group("web"); size != c.size || held || !strings.Contains(r.out, "is reset in dev-1") || r.errOut != "" {
				t.Errorf("size %d, held %t; it said %q and %q", size, held, r.out, r.errOut)
			}
		})
	}
	t.Run("held, and smaller in the config", func(t *testing.T) {
		w := newCluster(t).register()
		s := w.populated("dev-1").have(held(static(2, 0)))
		w.run("group", "reset", "web").want(t, cli.ExitUsage, "so 2 of these go: 2 instances: knd-1, knd-2\n", "add --yes")
		if size, held := s.group("web"); size != 2 || !held {
			t.Errorf("size %d, held %t without a yes", size, held)
		}
	})
}

// TestResetThatCanNotBeJudged changes nothing without --yes: a shard does not answer.
func TestResetThatCanNotBeJudged(t *testing.T) {
	c := newCluster(t).register()
	s := c.populated("dev-1").have(static(2, 1))
	c.serves("dev-2", "127.0.0.1:1")
	c.run("group", "reset", "web", "--all-shards", "--timeout", "1s").want(t, cli.ExitFailed)
	if size, _ := s.group("web"); size != 2 {
		t.Errorf("size %d", size)
	}
	c.run("group", "reset", "nope", "--shard", "dev-1").want(t, cli.ExitFailed, "nope")
}
