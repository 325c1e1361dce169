package plan_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server/plan"
)

// TestPace: a pace limits creates for any reason, except immediate ones.
func TestPace(t *testing.T) {
	for _, tt := range []struct{ name, state, want string }{
		{"no pace", "size=3", "create scale-up | create scale-up | create scale-up"},
		{"one at a time", "size=3 probation=1", "create scale-up"},
		{"two at a time", "size=3 probation=2 | a running", "create scale-up | create scale-up"},
		{"its create is under way", "size=3 probation=1 | a pending unmade busy", ""},
		{"its create was accepted", "size=3 probation=1 | a pending", "create scale-up"},
		{"its create was accepted, and it is to settle", "size=3 probation=1 settling settle=2m | a pending", ""},
		{"it runs, and is to settle", "size=3 probation=1 settling settle=2m | a running registered=90s", "wake +30s"},
		{"it has settled", "size=3 probation=1 settling settle=2m | a running registered=2m", "create scale-up"},
		{"it is to last for less", "size=3 probation=1 settling settle=2m proof=30s | a running registered=20s", "wake +10s"},
		{"it has lasted", "size=3 probation=1 settling settle=2m proof=30s | a running registered=30s", "create scale-up"},
		{"it settles before", "size=3 probation=1 settling settle=2m proof=5m | a running registered=90s", "wake +30s"},
		{"it settles with its registration", "size=3 probation=1 settling | a running registered=1s", "create scale-up"},
		{"nothing waits for it", "size=1 probation=1 settling settle=2m | a running registered=90s", "wake +2m50s"},
		{"it has died, which is to be recorded first", "size=2 probation=1 settling settle=2m | a running registered=90s down",
			"delete a vm-down | wake +30s"},
		{"it has died", "size=2 probation=1 settling settle=2m | a deleting registered=90s down retry=1s", "create scale-up"},
		{"it did not register, which is to be recorded first", "size=1 probation=1 settling | a pending created=5m",
			"delete a registration-timeout"},
		{"one of another definition is not on probation",
			"size=2 probation=1 settling settle=2m infra=new | a running registered=1s infra=old",
			"create scale-up"},
		{"one on demand is not on probation", "size=1 probation=1 settling settle=2m | a running registered=1s ondemand",
			"create scale-up"},
		{"as many as may be", "size=3 probation=2 settling settle=2m | a running registered=10s | b pending", "wake +1m50s"},

		{"a repeated create counts as one on probation", "size=3 probation=1 | a pending unmade | b pending unmade",
			"resume a not-created"},
		{"a repeated create is not while another is under way", "size=2 probation=1 | a pending unmade busy | b pending unmade", ""},
		{"a repeated create comes before a new one", "size=2 probation=1 | a pending unmade", "resume a not-created"},
		{"one that waits for its moment is not on probation", "size=2 probation=1 settling | a pending unmade retry=10s tried=1s",
			"create scale-up"},
		{"a replacement", "size=1 probation=1 settling settle=2m forced=25h | a running | b running registered=1s", ""},
		{"a replacement waits for its turn", "size=2 probation=1 settling settle=2m | a running silent=3m | b running registered=90s",
			"wake +30s"},
		{"a rotation", "size=4 max-surge=3 surge=3 probation=1 infra=new | a running infra=old | b running infra=old" +
			" | c running infra=old | d running infra=old",
			"create replacement"},
		{"a rotation while one is on probation",
			"size=2 max-surge=2 surge=2 probation=1 settling infra=new | a running infra=old | b running infra=old | c pending infra=new",
			""},
		{"one on demand is not on probation either", "size=0 probation=1 holdoff=20s | a pending unmade ondemand", "resume a not-created"},

		{"immediate: at once", "size=2 holdoff=20s probation=1 | a running | b deleting immediate retry=5s", "create scale-up immediate"},
		{"immediate: and lost just now", "size=2 holdoff=20s probation=1 | a running | b running immediate down",
			"create scale-up immediate | delete b vm-down"},
		{"immediate: the rest waits", "size=3 holdoff=20s probation=1 | a running | b deleted immediate",
			"create scale-up immediate | wake +20s"},
		{"immediate: beside one on probation", "size=3 probation=1 settling settle=2m | a running | b deleted immediate | c pending",
			"create scale-up immediate"},
		{"immediate: before the others", "size=4 probation=2 settling settle=2m | a running | b deleted immediate",
			"create scale-up immediate | create scale-up"},
		{"immediate: none is missing", "size=1 probation=1 | a running | b deleted immediate", ""},
		{"immediate: as many as are missing", "size=2 holdoff=20s | a running | b deleted immediate | c deleted immediate",
			"create scale-up immediate"},
		{"immediate: while it rotates",
			"size=2 probation=1 settling settle=2m infra=new | a running infra=old | b deleted immediate | c pending infra=new",
			"create replacement immediate"},
		{"immediate: not while it is disabled", "size=1 disabled | a deleted immediate", ""},
		{"no longer immediate", "size=1 holdoff=20s | a deleted", "wake +20s"},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.state, tt.want) })
	}
}

// TestMostAreOnProbation: 98 of a hundred instances are new. No more are created, and no rotation
// removes one of the two that are past their probation.
func TestMostAreOnProbation(t *testing.T) {
	v := large(100)
	v.Settings.Settle, v.Group.Size, v.Pace = 2*time.Minute, 105, plan.Pace{Probation: 64, Settling: true}
	for n := range 98 {
		v.Instances[2+n].RegisteredAt = new(now.Add(-time.Minute))
	}
	if d := plan.Next(v); len(d.Actions) != 1 || d.Actions[0].Kind != plan.Wake || !d.Actions[0].At.Equal(now.Add(time.Minute)) {
		t.Errorf("more are tried: %s", format(v, d.Actions))
	}
	v.Group.Size, v.Group.Hashes.Infra, v.Surge, v.Pace = 99, "new", 1, plan.Pace{}
	if d := plan.Next(v); len(d.Actions) != 1 || d.Actions[0].Kind != plan.Wake {
		t.Errorf("one leaves: %s", format(v, d.Actions))
	}
}
