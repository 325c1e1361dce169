package plan_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/server/plan"
)

// TestTombstonesOfEarlyEnds: those of machines that ended early are kept for a day while the group's
// creates go through a window for that, so that the next leader learns from them.
func TestTombstonesOfEarlyEnds(t *testing.T) {
	const (
		window = "size=1 drain=5m infra=i settle=2m probation=1 settling holdoff=1m"
		early  = " deleted deleted=1h registered=61m infra=i reason=vm-down"
		four   = " | b" + early + " | c" + early + " | d" + early + " | e" + early
	)
	for _, tt := range []struct{ name, state, want string }{
		{"kept", window + " | a" + early, ""},
		{"for a day", window + " | a deleted deleted=24h registered=24h1m infra=i reason=vm-down", "a"},
		{"it never registered", window + " | a deleted deleted=1h infra=i reason=registration-timeout", ""},
		{"it was lost before its drain", window + " | a deleted deleted=1h registered=66m infra=i reason=unhealthy until=-1h", ""},
		{"it had settled", window + " | a deleted deleted=1h registered=62m infra=i reason=vm-down", "a"},
		{"of another definition", window + " | a deleted deleted=1h registered=61m infra=old reason=vm-down", "a"},
		{"announced", window + " | a deleted deleted=1h registered=61m infra=i reason=shut-down", "a"},
		{"refused", window + " | a deleted deleted=1h infra=i reason=create-failed", "a"},
		{"on demand", window + " | a" + early + " ondemand", "a"},
		{"without a window", "size=1 infra=i settle=2m | a" + early, "a"},
		{"in a window for refusals", "size=1 infra=i settle=2m probation=1 | a" + early, "a"},
		{"of a group of none", strings.Replace(window, "size=1", "size=0", 1) + " | a" + early, "a"},
		{"no more than count", window + " | a" + early + four, "a"},
		{"the newest of these", window + " | a" + early + " | z deleted deleted=1h" + four, "a z"},
		{"as many as the group has", strings.Replace(window, "size=1", "size=5", 1) + " | a" + early + four, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := parse(t, tt.state)
			var pruned []string
			for _, a := range plan.Next(v).Actions {
				if a.Kind == plan.Prune {
					pruned = append(pruned, strings.TrimPrefix(format(v, []plan.Action{a})[:len("prune a")], "prune "))
				}
			}
			if got := strings.Join(pruned, " "); got != tt.want {
				t.Errorf("pruned: %q, want %q", got, tt.want)
			}
		})
	}
}
