package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server/plan"
)

// TestReplacementSettlesFirst: a working instance stays until enough others for the size have
// settled.
const day = 24 * time.Hour

func TestReplacementSettlesFirst(t *testing.T) {
	for _, tt := range []struct{ name, state, want string }{
		{"rotation: its replacement is up", "size=1 settle=2m infra=new | a running infra=old | b running infra=new registered=90s", "wake +30s"},
		{"rotation: its replacement has settled", "size=1 settle=2m infra=new | a running infra=old | b running infra=new registered=2m",
			"drain a infra-drift +5m0s"},
		{"rotation: its replacement has settled, and is not ready",
			"size=1 settle=2m infra=new | a running infra=old | b running infra=new disconnected", ""},
		{"rotation: its replacement has settled, but lacks its files",
			"size=1 settle=2m infra=new files | a running infra=old | b running infra=new without-files", ""},
		{"rotation: its replacement lacks its files, which are optional",
			"size=1 settle=2m infra=new files=optional | a running infra=old | b running infra=new without-files", "drain a infra-drift +5m0s"},
		{"rotation: its replacement has no files, since the group has none",
			"size=1 settle=2m infra=new | a running infra=old | b running infra=new without-files", "drain a infra-drift +5m0s"},
		{"lacking its files is no reason to be replaced", "size=1 files | a running without-files", ""},
		{"asked to be replaced: its replacement lacks its files", "size=1 files | a running asked | b running without-files", ""},
		{"rotation: forward from a definition without files: those that lack them go first",
			"size=1 settle=2m infra=newer files | a running infra=old | b running infra=new without-files", "drain b infra-drift +5m0s"},
		{"rotation: an older one that lacks its files goes first",
			"size=3 settle=2m infra=new files | a running infra=old | b running infra=old | d running infra=old without-files | e running infra=new",
			"drain d infra-drift +5m0s"},
		{"rotation: all lack their files, one has come",
			"size=3 infra=new files | a running infra=old without-files | b running infra=old without-files" +
				" | c running infra=old without-files | e running infra=new",
			"drain c infra-drift +5m0s"},
		{"rotation: all lack their files, one has come, and lacks them too",
			"size=3 infra=new files | a running infra=old without-files | b running infra=old without-files" +
				" | c running infra=old without-files | e running infra=new without-files", ""},
		{"rotation: all lack their files, one has come, and has not settled",
			"size=2 settle=2m infra=new files | a running infra=old without-files | b running infra=old without-files" +
				" | e running infra=new registered=90s", "wake +30s"},
		{"rotation: forward while one is silent",
			"size=3 infra=newer files | a running infra=newer silent=3m | b running infra=newer | c running infra=newer" +
				" | d running infra=new without-files", "drain d infra-drift +5m0s"},
		{"forced expiry: all lack their files, one has come",
			"size=2 forced=24h files | a running without-files | b running without-files | c running", "drain b forced-expiry +5m0s"},
		{"silent: its replacement lacks its files", "size=2 files | a running silent=3m | b running | c running without-files", ""},
		{"asked to be replaced: two that lack their files, one ready came",
			"size=3 files | a running | b running asked without-files | c running asked without-files | d running",
			"drain c asked-to-be-replaced +5m0s"},
		{"asked to be replaced: a silent one that came after one without files goes first",
			"size=3 infra=new files | a running infra=new asked | b running infra=old without-files | c running infra=old silent=3m" +
				" | d running infra=new", "drain c unhealthy +5m0s"},
		{"asked to be replaced, and so is its replacement, which lacks its files",
			"size=1 files | a running asked | b running asked without-files", "drain b asked-to-be-replaced +5m0s"},
		{"asked to be replaced: all others are ready, and one more lacks its files",
			"size=2 files | a running asked | b running | c running asked without-files", "drain c asked-to-be-replaced +5m0s"},
		{"rotation: a silent one stands in for none that lacks its files",
			"size=1 infra=newer files | a running infra=old without-files | b running infra=newer silent=3m", "drain b unhealthy +5m0s"},
		{"forced expiry: a silent one stands in for none that lacks its files",
			"size=1 forced=25h files | a running without-files | b running silent=3m", "create replacement | drain b unhealthy +5m0s"},
		{"rotation: forward when none has files: the youngest goes first",
			"size=1 settle=2m infra=newer files | a running infra=old without-files | b running infra=new without-files",
			"drain b infra-drift +5m0s"},
		{"rotation: back when none has files",
			"size=3 infra=old files | a running infra=old | b running infra=old | c running infra=old without-files" +
				" | d running infra=new without-files", "drain d infra-drift +5m0s"},
		{"rotation: silent ones that leave stand in for none",
			"size=2 infra=newer files | a running infra=newer silent=3m | b running infra=newer" +
				" | c running infra=new without-files | d pending infra=newer", "drain a scale-down +5m0s"},
		{"rotation: another is on probation", "size=2 settle=2m infra=new | a running infra=old | b running registered=1m | c running infra=new",
			"wake +1m0s"},
		{"rotation: the old ones are on probation themselves",
			"size=2 settle=2m infra=new | a running infra=old registered=1m | b running infra=old registered=1m" +
				" | c running infra=new registered=50s",
			"wake +1m0s"},
		{"rotation: its replacement died young", "size=1 settle=2m infra=new | a running infra=old | b running infra=new registered=90s down",
			"create replacement | delete b vm-down"},
		{"expiry: its replacement is up", "size=1 settle=2m eligible=24h | a running | b running registered=90s", "wake +30s"},
		{"forced expiry: its replacement is up", "size=1 settle=2m forced=25h | a running | b running registered=90s", "wake +30s"},
		{"forced expiry: its replacement has settled", "size=1 settle=2m forced=24h | a running | b running registered=2m",
			"drain a forced-expiry +5m0s"},
		{"forced expiry: its replacement died young", "size=1 settle=2m forced=24h | a running | b running registered=90s down",
			"create replacement | delete b vm-down"},
		{"forced expiry: its replacement fell silent",
			"size=1 settle=2m forced=24h | a running | b running silent=3m registered=10m", "create replacement | drain b unhealthy +5m0s"},
		{"forced expiry: silent ones are no replacement", "size=2 forced=25h | a running | b running | c running disconnected", ""},
		{"asked to be replaced: ready will do", "size=1 settle=2m | a running asked | b running registered=90s",
			"drain a asked-to-be-replaced +5m0s"},
		{"unhealthy: ready will do", "size=1 settle=2m | a running silent=3m | b running registered=90s", "drain a unhealthy +5m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.state, tt.want) })
	}
}

// TestPausedRollout: while the rollout is paused, nothing replaces an instance that works, and the youngest
// leave first. All else goes on.
func TestPausedRollout(t *testing.T) {
	const old, more = " | a running infra=old | b running infra=old", " | c running infra=new | d running infra=new"
	for _, tt := range []struct{ name, state, want string }{
		{"another definition", "size=2 infra=new max-surge=2 surge=9 paused" + old, ""},
		{"eligible by age", "size=2 eligible=24h surge=9 paused | a running | b running", ""},
		{"past the forced age", "size=1 forced=24h surge=9 paused | a running", "create replacement"},
		{"past the forced age, and its replacement has settled", "size=2 infra=new forced=24h surge=9 paused" + old + " | c running infra=new",
			"drain a forced-expiry +5m0s"},
		{"a replacement is pending", "size=2 infra=new surge=9 paused" + old + " | c pending infra=new", "delete c scale-down"},
		{"a replacement has settled", "size=2 infra=new surge=9 paused" + old + " | c running infra=new", "drain c scale-down +5m0s"},
		{"a replacement has not settled", "size=2 infra=new settle=2m surge=9 paused" + old + " | c running infra=new registered=1m",
			"drain c scale-down +5m0s"},
		{"a replacement lacks its files", "size=3 infra=new files surge=9 paused" + old + " | c running infra=new without-files" +
			" | d running infra=new", "drain c scale-down +5m0s"},
		{"in the middle", "size=4 infra=new max-surge=2 surge=9 paused" + old + more + " | e pending infra=new | f running infra=new",
			"drain f scale-down +5m0s | delete e scale-down"},
		{"in the middle, and the definition changes once more", "size=3 infra=newer surge=9 paused" + old + more, "drain d scale-down +5m0s"},
		{"in the middle, and the definition changes back", "size=3 infra=old surge=9 paused" + old + more, "drain d scale-down +5m0s"},
		{"a replacement died", "size=2 infra=new surge=9 paused" + old + " | c running infra=new down", "delete c vm-down"},
		{"its replacement is here", "size=2 infra=new surge=9 paused | a draining reason=infra-drift | b running infra=old" +
			" | c running infra=new", ""},
		{"a dead one", "size=2 infra=new surge=9 paused | a running infra=old | b running infra=old down", "create scale-up | delete b vm-down"},
		{"a dead one, and a replacement", "size=2 infra=new surge=9 paused | a running infra=old down | b running infra=old" +
			" | c running infra=new", "delete a vm-down"},
		{"a silent one", "size=2 infra=new surge=9 paused | a running infra=old | b running infra=old silent=3m", "create replacement"},
		{"asked to be replaced", "size=2 infra=new surge=9 paused | a running infra=old asked | b running infra=old", "create replacement"},
		{"a larger size", "size=3 infra=new surge=9 paused" + old, "create scale-up"},
		{"a smaller size", "size=1 infra=new paused" + old, "drain b scale-down +5m0s"},
		{"a smaller size, and new ones", "size=1 infra=new paused" + old + more,
			"drain b scale-down +5m0s | drain c scale-down +5m0s | drain d scale-down +5m0s"},
		{"a smaller size, and one is named", "size=1 infra=new paused leaving=a" + old, "drain a asked-to-leave +5m0s"},
		{"a smaller size, and a record can't be read", "size=1 infra=new filled=1 paused" + old, ""},
		{"no size", "size=0 infra=new paused | a running infra=old", "drain a scale-down +5m0s"},
		{"held", "size=1 infra=new held paused" + old, ""},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.state, tt.want) })
	}
}

// TestSurge: several are replaced at a time, within the surge of group and shard.
func TestSurge(t *testing.T) {
	old := " | a running infra=old | b running infra=old | c running infra=old | d running infra=old"
	for _, tt := range []struct{ name, state, want string }{
		{"one at a time", "size=4 infra=new surge=9" + old, "create replacement"},
		{"by number", "size=4 infra=new max-surge=3 surge=9" + old, "create replacement | create replacement | create replacement"},
		{"by share", "size=4 infra=new max-surge=50% surge=9" + old, "create replacement | create replacement"},
		{"no more than are stale", "size=2 infra=new max-surge=9 surge=9 | a running infra=old | b running infra=new", "create replacement"},
		{"by the shard", "size=4 infra=new max-surge=3 surge=2" + old, "create replacement | create replacement"},
		{"none left in the shard", "size=4 infra=new max-surge=3 surge=0" + old, ""},
		{"the shard's shrinks below what is used: all stay",
			"size=4 infra=new max-surge=3 surge=0" + old + " | e pending infra=new | f pending infra=new", ""},
		{"the shard's has shrunk: those that came are of use",
			"size=4 infra=new max-surge=3 surge=0" + old + " | e running infra=new | f running infra=new",
			"drain a infra-drift +5m0s | drain b infra-drift +5m0s"},
		{"the group's shrinks: what is too many goes", "size=4 infra=new surge=0" + old + " | e pending infra=new | f pending infra=new",
			"delete e scale-down"},
		{"as many leave as have come", "size=4 infra=new max-surge=3 surge=3" + old + " | e running infra=new" +
			" | f running infra=new | g pending infra=new",
			"drain a infra-drift +5m0s | drain b infra-drift +5m0s"},
		{"those that drain are beyond the size", "size=2 infra=new max-surge=3 surge=3 | a draining reason=infra-drift" +
			" | b draining reason=scale-down" +
			" | c running infra=old | d running infra=old", "create replacement"},
		{"those that drain are the shard's too", "size=2 infra=new max-surge=3 surge=1 | a draining reason=infra-drift" +
			" | c running infra=old | d running infra=old", ""},
		{"nothing begins while as many drain as may be beyond", "size=2 infra=new max-surge=2 surge=2 | a draining reason=scale-down" +
			" | b draining reason=scale-down | c running infra=old | d running infra=old", ""},
		{"what has begun goes on while many drain", "size=2 infra=new max-surge=2 surge=2 | a draining | b draining" +
			" | c running infra=old | d running infra=old | e running infra=new", "drain c infra-drift +5m0s"},
		{"nothing begins while one is silent", "size=2 infra=new max-surge=2 surge=2 | a running infra=old | b running infra=old silent=3m",
			"create replacement"},
		{"nothing begins while one is missing", "size=3 infra=new max-surge=2 surge=2 | a running infra=old | b running infra=old",
			"create scale-up"},
		{"one asked out is among those beyond", "size=2 infra=new max-surge=2 surge=2 | a running infra=old | b running infra=old asked",
			"create replacement | create replacement"},
		{"one asked out does not ask the shard", "size=2 infra=new max-surge=2 surge=0 | a running infra=old | b running infra=old asked",
			"create replacement"},
		{"expiry: several", "size=3 eligible=24h max-surge=2 surge=2 | a running | b running" +
			" | c running", "create replacement | create replacement"},
		{"expiry: those of age", "size=3 eligible=24h59m max-surge=2 surge=2 | a running | b running | c running",
			"create replacement | create replacement"},
		{"expiry and rotation", "size=2 eligible=25h infra=new max-surge=2 surge=2 | a running | b running infra=old" +
			" | c running infra=new | d running infra=new",
			"drain a expired +5m0s | drain b infra-drift +5m0s"},
		{"forced expiry, and time for it", "size=3 forced=24h max-surge=2 surge=2 | a running | b running | c running | d running | e running",
			"drain a forced-expiry +5m0s | drain b forced-expiry +5m0s"},
		{"scaled down meanwhile", "size=2 infra=new max-surge=2 surge=2" + old + " | e pending infra=new",
			"drain a infra-drift +5m0s | drain b infra-drift +5m0s | delete e scale-down"},
		{"lost meanwhile", "size=2 infra=new max-surge=1 | a running infra=old | b running infra=old down | c pending infra=new",
			"create replacement | delete b vm-down"},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.state, tt.want) })
	}
}

// TestSurgeIsAccountedFor: Decision.Surge and Decision.Starved.
func TestSurgeIsAccountedFor(t *testing.T) {
	old := " | a running infra=old | b running infra=old"
	for _, tt := range []struct {
		name, state string
		used        int
		starved     bool
	}{
		{"nothing to do", "size=2 max-surge=2 surge=9" + old, 0, false},
		{"begins", "size=2 infra=new max-surge=2 surge=9" + old, 2, false},
		{"begins with less", "size=2 infra=new max-surge=2 surge=1" + old, 1, true},
		{"may not begin", "size=2 infra=new max-surge=2 surge=0" + old, 0, true},
		{"goes on", "size=2 infra=new max-surge=2 surge=2" + old + " | c pending", 2, false},
		{"has more than it may", "size=2 infra=new max-surge=2 surge=0" + old + " | c pending", 1, true},
		{"drains", "size=2 infra=new max-surge=2 surge=2 | a draining reason=infra-drift | b draining reason=expired" +
			" | c running | d running", 2, false},
		{"begins to drain", "size=2 infra=new max-surge=2 surge=2" + old + " | c running | d running", 2, false},
		{"writes that it drains", "size=1 infra=new | a running infra=old busy | b running infra=new", 1, false},
		{"drains something else", "size=1 | a draining | b running", 0, false},
		{"makes up for a loss", "size=2 infra=new max-surge=2 surge=2 | a running infra=old", 0, false},
		{"replaces one asked out", "size=2 max-surge=2 surge=0 | a running asked | b running", 0, false},
		{"replaces a silent one, and is not calm", "size=2 infra=new max-surge=2 surge=0 | a running silent=3m | b running infra=old", 0, false},
		{"waits for its own pace", "size=2 infra=new max-surge=2 surge=0 holdoff=20s" + old, 0, false},
		{"waits for its own probation", "size=2 infra=new max-surge=2 surge=1 probation=1 settling" + old + " | c pending infra=new", 1, false},
		{"probes", "size=2 infra=new max-surge=2 surge=2 probation=1 settling" + old, 1, false},
		{"has failed, and gives back", "size=2 infra=new max-surge=2 surge=2 holdoff=20s" + old + " | c deleted", 0, false},
		{"scales down", "size=1 max-surge=2 surge=2" + old, 0, false},
		{"is disabled half-way", "size=1 disabled infra=new max-surge=2 surge=2" + old, 1, false},
		{"goes", "size=2 removed infra=new max-surge=2 surge=2" + old, 0, false},
	} {
		d := plan.Next(parse(t, tt.state))
		if d.Surge != tt.used || d.Starved != tt.starved {
			t.Errorf("%s: uses %d, starved %v; want %d, %v: %s", tt.name, d.Surge, d.Starved, tt.used, tt.starved, tt.state)
		}
	}
}

// TestStarvedWakes: a group that backs off is decided again when its back-off ends, although the
// shard allows it no surge now.
func TestStarvedWakes(t *testing.T) {
	expect(t, "size=1 infra=new surge=0 holdoff=20s | a running infra=old", "wake +20s")
}

// TestSurgeOfAShare: a whole rotation of a thousand instances with a surge of 5 %.
func TestSurgeOfAShare(t *testing.T) {
	v := large(1000)
	v.Group.MaxSurge.Percent, v.Surge = 5, 100
	v.Group.Hashes.Infra = "new"
	d := plan.Next(v)
	if text := format(v, d.Actions); strings.Count(text, "create replacement") != 50 || d.Surge != 50 {
		t.Errorf("uses %d: %s", d.Surge, text)
	}
	for n := range 50 {
		i := instance(newID(now.Add(-2*day), uint64(n)), "running")
		i.Hashes.Infra = "new"
		v.Instances = append(v.Instances, i)
	}
	d = plan.Next(v)
	if n := len(d.Actions); n < 50 || d.Surge != 50 {
		t.Errorf("%d leave, %d used: %s", n, d.Surge, format(v, d.Actions))
	}
	for n := range 50 {
		if a := d.Actions[n]; a.Kind != plan.Drain || a.ID != v.Instances[n].ID || a.Reason != plan.ReasonDrift {
			t.Fatalf("%d. to leave: %+v", n, a)
		}
	}
}

// large returns a group of working instances built from an old definition.
func large(size int) plan.View {
	v := plan.View{Now: now, Settings: settings(), Takeover: now.Add(-day)}
	v.Settings.Settle = 0
	v.Group.Size, v.Group.DrainTimeout = size, 5*time.Minute
	for n := range size {
		i := instance(newID(now.Add(-3*day), uint64(n)), "running")
		i.Hashes.Infra = "old"
		v.Instances = append(v.Instances, i)
	}
	return v
}

// TestBadImage plays a rotation to an image whose machines register and die before they settle:
// working instances stay.
func TestBadImage(t *testing.T) {
	for _, forced := range []string{"0s", "24h"} {
		state := fmt.Sprintf("size=3 settle=2m infra=new forced=%s eligible=1h max-surge=2 surge=2"+
			" | a running infra=old | b running infra=old | c running infra=old", forced)
		for _, fate := range []string{
			"pending", "running registered=119s", "running registered=119s down", "running registered=10m silent=9m", "deleting down retry=1s",
		} {
			v := parse(t, state+" | d "+fate+" infra=new | e "+fate+" infra=new")
			for _, a := range plan.Next(v).Actions {
				if a.ID == id("a") || a.ID == id("b") || a.ID == id("c") {
					t.Errorf("%s %s because of %s, its replacements being %s", a.Kind, a.ID, a.Reason, fate)
				}
			}
		}
	}
}
