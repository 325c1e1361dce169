package plan_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server/plan"
)

// TestPace holds creates back whatever they are for, but for those that are owed.
func TestPace(t *testing.T) {
	for _, tt := range []struct{ name, state, want string }{
		{"no pace", "size=3", "create scale-up | create scale-up | create scale-up"},
		{"one at a time", "size=3 trials=1", "create scale-up"},
		{"two at a time", "size=3 trials=2 | a running", "create scale-up | create scale-up"},
		{"its create is under way", "size=3 trials=1 | a pending unmade busy", ""},
		{"its create was accepted", "size=3 trials=1 | a pending", "create scale-up"},
		{"its create was accepted, and it is to settle", "size=3 trials=1 settling settle=2m | a pending", ""},
		{"it runs, and is to settle", "size=3 trials=1 settling settle=2m | a running registered=90s", "wake +30s"},
		{"it has settled", "size=3 trials=1 settling settle=2m | a running registered=2m", "create scale-up"},
		{"it is to last for less", "size=3 trials=1 settling settle=2m proof=30s | a running registered=20s", "wake +10s"},
		{"it has lasted", "size=3 trials=1 settling settle=2m proof=30s | a running registered=30s", "create scale-up"},
		{"it settles before", "size=3 trials=1 settling settle=2m proof=5m | a running registered=90s", "wake +30s"},
		{"it settles with its registration", "size=3 trials=1 settling | a running registered=1s", "create scale-up"},
		{"nothing waits for it", "size=1 trials=1 settling settle=2m | a running registered=90s", "wake +2m50s"},
		{"it has died, which is to be recorded first", "size=2 trials=1 settling settle=2m | a running registered=90s down",
			"delete a vm-down | wake +30s"},
		{"it has died", "size=2 trials=1 settling settle=2m | a deleting registered=90s down retry=1s", "create scale-up"},
		{"it did not register, which is to be recorded first", "size=1 trials=1 settling | a pending created=5m",
			"delete a registration-timeout"},
		{"one of another definition is on no trial", "size=2 trials=1 settling settle=2m infra=new | a running registered=1s infra=old",
			"create scale-up"},
		{"one on demand is on no trial", "size=1 trials=1 settling settle=2m | a running registered=1s ondemand", "create scale-up"},
		{"as many as may be", "size=3 trials=2 settling settle=2m | a running registered=10s | b pending", "wake +1m50s"},

		{"a repeated create is a trial", "size=3 trials=1 | a pending unmade | b pending unmade", "resume a not-created"},
		{"a repeated create is not while another is under way", "size=2 trials=1 | a pending unmade busy | b pending unmade", ""},
		{"a repeated create comes before a new one", "size=2 trials=1 | a pending unmade", "resume a not-created"},
		{"one that waits for its moment is on no trial", "size=2 trials=1 settling | a pending unmade retry=10s tried=1s", "create scale-up"},
		{"a replacement", "size=1 trials=1 settling settle=2m forced=25h | a running | b running registered=1s", ""},
		{"a replacement waits for its turn", "size=2 trials=1 settling settle=2m | a running silent=3m | b running registered=90s",
			"wake +30s"},
		{"a rotation", "size=4 max-surge=3 surge=3 trials=1 infra=new | a running infra=old | b running infra=old" +
			" | c running infra=old | d running infra=old",
			"create replacement"},
		{"a rotation while one is on trial",
			"size=2 max-surge=2 surge=2 trials=1 settling infra=new | a running infra=old | b running infra=old | c pending infra=new", ""},
		{"one on demand is no trial either", "size=0 trials=1 holdoff=20s | a pending unmade ondemand", "resume a not-created"},

		{"owed: at once", "size=2 holdoff=20s trials=1 | a running | b deleting owed retry=5s", "create scale-up owed"},
		{"owed: and lost just now", "size=2 holdoff=20s trials=1 | a running | b running owed down", "create scale-up owed | delete b vm-down"},
		{"owed: the rest waits", "size=3 holdoff=20s trials=1 | a running | b deleted owed", "create scale-up owed | wake +20s"},
		{"owed: beside one on trial", "size=3 trials=1 settling settle=2m | a running | b deleted owed | c pending", "create scale-up owed"},
		{"owed: before the others", "size=4 trials=2 settling settle=2m | a running | b deleted owed",
			"create scale-up owed | create scale-up"},
		{"owed: nobody is missing", "size=1 trials=1 | a running | b deleted owed", ""},
		{"owed: as many as are missing", "size=2 holdoff=20s | a running | b deleted owed | c deleted owed", "create scale-up owed"},
		{"owed: while it rotates",
			"size=2 trials=1 settling settle=2m infra=new | a running infra=old | b deleted owed | c pending infra=new",
			"create replacement owed"},
		{"owed: not while it is disabled", "size=1 disabled | a deleted owed", ""},
		{"no longer owed", "size=1 holdoff=20s | a deleted", "wake +20s"},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.state, tt.want) })
	}
}

// TestMostAreOnTrial: of a hundred 98 came up a moment ago. Nothing new is tried beside
// them, and no rotation takes one of the two that have lasted.
func TestMostAreOnTrial(t *testing.T) {
	v := large(100)
	v.Settings.Settle, v.Group.Size, v.Pace = 2*time.Minute, 105, plan.Pace{Trials: 64, Settling: true}
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
