package pacing_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/pacing"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestNews: failing creates are told when they begin and when what is said of them changes, apart from
// the instance and the details, and once when they end.
func TestNews(t *testing.T) {
	var told string
	var covered bool // the last refusal is
	p := pacing.New(func(int) time.Duration { return time.Minute }, func(n pacing.News) {
		if n.Began {
			told += "began "
		}
		if n.Problem != nil {
			told += n.Problem.Message
		}
		if n.Ended {
			told += "ended"
		}
	})
	now := time.Unix(1e9, 0)
	g := fleet.Group{Key: fleet.GroupKey{Tenant: "t", Name: "g"}, Size: 3, Hashes: fleet.Hashes{Infra: "i1"}}
	refuse := func(id fleet.InstanceID, reason, message, details string) func() {
		return func() {
			now = now.Add(time.Second)
			covered = p.Refused(g, pacing.Failure{ID: id, Began: now, At: now, Reason: reason, Message: message, Details: details})
		}
	}
	begin := func() { refuse("i-1", "R", "i-1 is bad", "")(); refuse("i-2", "R", "i-2 is bad", ": x")() }
	const began = "began creates fail (R): i-2 is bad: x"
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"one refusal", refuse("i-1", "R", "i-1 is bad", ": w"), ""},
		{"two", refuse("i-2", "R", "i-2 is bad", ": x"), began},
		{"another instance, other details", refuse("i-3", "R", "i-3 is bad", ": y"), ""},
		{"another message", refuse("i-4", "R", "i-4 is worse", ": z"), "creates fail (R): i-4 is worse: z"},
		{"another reason", refuse("i-4", "S", "i-4 is worse", ": z"), "creates fail (S): i-4 is worse: z"},
		{"accepted", func() { p.Accepted(g, "i-5", now.Add(time.Second)) }, "ended"},
		{"refused with the same words", refuse("i-4", "S", "i-4 is worse", ": z"), "began creates fail (S): i-4 is worse: z"},
		{"accepted again", func() { p.Accepted(g, "i-5", now.Add(time.Second)) }, "ended"},
		{"failing again", func() { p.Converged(g); begin() }, began},
		{"converged", func() { p.Converged(g) }, "ended"},
		{"and again", begin, began},
		{"dropped", func() { p.Drop(g.Key) }, "ended"},
		{"dropped twice", func() { p.Drop(g.Key) }, ""},
		{"once more", begin, began},
		{"another definition", func() {
			g.Hashes.Infra = "i2"
			if pace := p.Pace(g); pace != (plan.Pace{}) {
				t.Errorf("another definition is limited to %+v", pace)
			}
			p.At(g, nil, plan.Settings{}, now)
		}, "ended"},
	} {
		told = ""
		step.do()
		if told != step.want {
			t.Errorf("%s: told %q, want %q", step.name, told, step.want)
		}
		c, fails := p.Condition(g.Key, now)
		if step.name == "two" && (!covered || c.Message != "i-2 is bad: x") || step.name == "one refusal" && (covered || fails) {
			t.Errorf("%s: covered: %v; the condition says %q", step.name, covered, c.Message)
		}
	}
	if n := p.Entries(); n != 0 {
		t.Errorf("%d groups are remembered", n)
	}
}
