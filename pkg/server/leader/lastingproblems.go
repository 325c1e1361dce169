package leader

import (
	"github.com/nstance/nstance/pkg/fleet"
)

// ReasonStuck is the reason of the problem that the leader can't act.
const ReasonStuck = "LeaderStuck"

// ReasonIdentityShared is the reason of the problem that two machines have the identity of
// one instance.
const ReasonIdentityShared = "IdentityShared"

// Report logs a problem and tells those who watch.
func (t *Term) Report(p fleet.Problem) { t.problems.report(p) }

// Over notes that the shard has no problem of a reason any more.
func (t *Term) Over(reason string) { t.problems.over(reason) }

// maxConfigProblems is how many problems of the static config are told to those who
// begin to watch. Whoever wants all of them asks for the config's status.
const maxConfigProblems = 100

// lastingProblems are those of the shard that last although nobody reports them
// again and again: why nothing is changed, and why the config in storage does not
// run.
func (t *Term) lastingProblems() (out []fleet.Problem) {
	add := func(reason, message string) {
		out = append(out, fleet.Problem{At: t.cfg.Now(), Reason: reason, Message: message})
	}
	if held := t.loop.Held(); held.Message != "" {
		add(held.Reason, held.Message)
	}
	// Told of now and then, it may have given way to another problem meanwhile.
	if stuck := t.cfg.Stuck(); stuck != "" && t.problems.of(fleet.GroupKey{}).Reason != ReasonStuck {
		add(ReasonStuck, stuck)
	}
	c := t.config.now()
	if len(c.awaits) > 0 {
		add(ReasonAwaits, confirmation(t.cfg.Static.Shard, c.awaits))
	}
	if c.fromApplied {
		for _, p := range c.problems[:min(len(c.problems), maxConfigProblems)] {
			add(ReasonConfig, p.String())
		}
	}
	return out
}
