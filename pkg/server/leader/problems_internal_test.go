package leader

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/broadcast"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// told are the problems that a reader was told of, in words.
func told(t *testing.T, r *broadcast.Reader[fleet.Problem]) (words []string) {
	t.Helper()
	for {
		p, ok, err := r.Take()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return words
		}
		text := p.Group.String() + " " + string(p.Instance) + " " + p.Reason
		if p.Over {
			text += " over" + p.Message
		}
		words = append(words, text)
	}
}

func newTestProblems() *problems {
	s := newProblems(Config{Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	s.gone = func(fleet.GroupKey) bool { return false }
	s.held = func() fleet.Problem { return fleet.Problem{} }
	s.lasting = func() []fleet.Problem { return nil }
	s.known, s.knownOf = s.lasting, func(fleet.GroupKey) []fleet.Problem { return nil }
	return s
}

// TestEndsOfProblems: the end of a problem that lasts is told once to its tenant,
// whatever else came up of its group since; of what is a single event nothing more is
// told.
func TestEndsOfProblems(t *testing.T) {
	db := fleet.GroupKey{Tenant: "prod", Name: "db"}
	web, shard := fleet.GroupKey{Tenant: "prod", Name: "web"}, fleet.GroupKey{}
	for name, c := range map[string]struct {
		reason string
		of     fleet.GroupKey
		id     fleet.InstanceID
		end    func(*problems)
		want   []string
	}{
		"creates": {"CreatesFailing", web, "", func(s *problems) { s.solved(web, "CreatesFailing") }, []string{"prod/web  CreatesFailing over"}},
		"load balancer": {
			reconcile.ReasonLoadBalancer, web, "knd1", func(s *problems) { s.solved(web, reconcile.ReasonLoadBalancer) },
			[]string{"prod/web knd1 LoadBalancerError over"},
		},
		"delete": {
			"DeleteStuck", web, "knd1", func(s *problems) { s.progress(web, fleet.Instance{ID: "knd1", Phase: fleet.Deleted}) },
			[]string{"prod/web knd1 DeleteStuck over"},
		},
		"files":        {delivery.ReasonFiles, web, "", func(s *problems) { s.delivered(web) }, []string{"prod/web  FilesInvalid over"}},
		"group mended": {ReasonGroups, web, "", func(s *problems) { s.mended(nil) }, []string{"prod/web  GroupsInvalid over"}},
		"group wrong still": {
			ReasonGroups, web, "", func(s *problems) { s.mended(config.Problems{{Path: "groups.prod.web.size"}}) }, nil,
		},
		"group gone": {"CreatesFailing", web, "", func(s *problems) {
			s.gone = func(fleet.GroupKey) bool { return true }
			s.prune()
		}, []string{"prod/web  CreatesFailing over"}},
		"another's":       {"CreatesFailing", web, "", func(s *problems) { s.solved(db, "CreatesFailing") }, nil},
		"another one":     {"CreatesFailing", web, "", func(s *problems) { s.solved(web, reconcile.ReasonLoadBalancer) }, nil},
		"a single event":  {reconcile.ReasonProvider, web, "", func(s *problems) { s.solved(web, reconcile.ReasonProvider) }, nil},
		"hold":            {reconcile.ReasonAbsent, shard, "", func(s *problems) { s.over("VMsNotFound") }, []string{"/  VMsNotFound over"}},
		"throttled":       {"Throttled", shard, "", func(s *problems) { s.over("Throttled") }, []string{"/  Throttled over"}},
		"config":          {ReasonConfig, shard, "", func(s *problems) { s.over(ReasonConfig) }, []string{"/  ConfigInvalid over"}},
		"shard of others": {ReasonConfig, shard, "", func(s *problems) { s.solved(web, ReasonConfig) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestProblems()
			tenant := c.of.Tenant
			if c.of == shard {
				tenant = fleet.DefaultTenant
			}
			r, other := s.Follow(tenant), s.Follow("other")
			for range 3 { // it is one all the same
				s.report(fleet.Problem{At: time.Now(), Reason: c.reason, Message: "no", Group: c.of, Instance: c.id})
			}
			s.report(fleet.Problem{At: time.Now(), Reason: reconcile.ReasonBuild, Message: "no", Group: c.of})
			if have := told(t, r); len(have) != 4 {
				t.Fatalf("told %q", have)
			}
			for range 2 {
				c.end(s)
			}
			if have := told(t, r); !slices.Equal(have, c.want) {
				t.Errorf("told %q, want %q", have, c.want)
			}
			if have := told(t, other); len(have) > 0 {
				t.Errorf("another tenant is told %q", have)
			}
			if left := len(s.standing); left > 0 && c.want != nil {
				t.Errorf("%d are remembered", left)
			}
		})
	}
}

// TestProblemsOfGroupsThatAreGone: nothing is left of the problems of a thousand groups
// and their instances.
func TestProblemsOfGroupsThatAreGone(t *testing.T) {
	s := newTestProblems()
	for n := range 1000 {
		key := fleet.GroupKey{Tenant: "default", Name: fmt.Sprint("g", n)}
		for m, reason := range []string{
			"CreatesFailing", "DeleteStuck", reconcile.ReasonProvider, reconcile.ReasonLoadBalancer, delivery.ReasonFiles,
		} {
			s.report(fleet.Problem{At: time.Now(), Reason: reason, Message: "no", Group: key, Instance: fleet.InstanceID(fmt.Sprint("knd", m))})
		}
	}
	s.gone = func(fleet.GroupKey) bool { return true }
	s.prune()
	if len(s.last)+len(s.standing) > 0 {
		t.Errorf("%d and %d are left", len(s.last), len(s.standing))
	}
}
