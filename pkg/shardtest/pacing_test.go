package shardtest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/shardtest"
)

// registered returns when the n-th instance of a group moved to running after the driver's first
// line that begins with from.
func registered(t *testing.T, entries []shardtest.Entry, from, group string, n int) time.Duration {
	t.Helper()
	began, found := after(entries, from, "driver", from), after(entries, from, "", " of "+group+": pending to running")
	if len(began) == 0 || len(found) < n {
		t.Fatalf("%d instances of %s came to run after %q, want %d", len(found), group, from, n)
	}
	return found[n-1].At - began[0].At
}

// TestFailingGroupHoldsUpNoOther: a group whose creates fail does not slow down another one.
func TestFailingGroupHoldsUpNoOther(t *testing.T) {
	const grow = "scale web 5\nwait 5m\n"
	alone := registered(t, told(t, twoServers+grow), "scale web", "web", 3)
	for name, fault := range map[string]string{
		"machines die":           "machines db die 3s\nscale db 4\n",
		"machines are mute":      "machines db mute\nscale db 4\n",
		"the failing one is new": "machines db die 3s\n",
	} {
		t.Run(name, func(t *testing.T) {
			entries := told(t, twoServers+fault+"wait 2m\nscale db 5\n"+grow)
			if beside := registered(t, entries, "scale web", "web", 3); beside > alone*12/10 {
				t.Errorf("it took %s, and %s alone", beside, alone)
			}
		})
	}
}

// TestFailingGroupIsPaced: a group whose machines die, or whose creates are refused, makes about as
// many creates per hour as a maximum back-off of five minutes allows.
func TestFailingGroupIsPaced(t *testing.T) {
	for name, c := range map[string]struct{ fault, group string }{
		"machines die":   {"machines db die 3s\nscale db 4\n", "db"},
		"refused":        {"config type unknown\nrefresh\nscale db 4\n", "db"},
		"dying rotation": {"config type rotten\nrefresh\nscale db 2\n", "web"},
	} {
		t.Run(name, func(t *testing.T) {
			first, _, _ := strings.Cut(c.fault, "\n")
			tries := after(told(t, twoServers+c.fault+"wait 1h\n"), first, "", " of "+c.group+": pending")
			n := 0
			for _, e := range tries {
				if strings.HasPrefix(e.Text, "records") && strings.HasSuffix(e.Text, "pending") {
					n++
				}
			}
			if n < 12 || n > 50 {
				t.Errorf("%d creates in an hour, want about 30", n)
			}
		})
	}
}

// TestSpotWaveIsMadeGood: if any half of a fleet that has not settled ends at once, it is replaced
// as fast as it was created, and no failing creates are reported.
func TestSpotWaveIsMadeGood(t *testing.T) {
	const fleet, wave = 40, 20
	for seed := range uint64(4) {
		story := twoServers + "scale web 40\nwait 40s\n"
		for _, n := range rand.New(rand.NewPCG(seed, 0)).Perm(fleet)[:wave] {
			story += fmt.Sprintf("vm dies any%d\n", 2+n) // machines are in the order of their ids
		}
		entries := told(t, story+"wait 5m\n")
		lost := after(entries, "vm dies", "", " of web: running to ")
		if len(lost) < wave/2 { // some may be of other groups
			t.Fatalf("wave %d: %d of web were lost", seed, len(lost))
		}
		came := registered(t, entries, "scale web", "web", wave)
		if took := registered(t, entries, "vm dies", "web", len(lost)); took > came+time.Second {
			t.Errorf("wave %d: %d replacements came to run after %s, as many new ones after %s", seed, len(lost), took, came)
		}
		if failing := after(entries, "vm dies", "", "log: WARN problem reason=CreatesFailing"); len(failing) > 0 {
			t.Errorf("wave %d: %s", seed, failing[0].Text)
		}
	}
}

// TestBadImageEatsNothing: however long an image is bad, no working machine is removed for it, and
// the shard settles when the image is reverted.
func TestBadImageEatsNothing(t *testing.T) {
	for _, bad := range []string{"rotten", "unknown"} {
		t.Run(bad, func(t *testing.T) {
			entries := told(t, twoServers+"config type "+bad+"\nrefresh\nwait 6h\nconfig type small\nrefresh\nsettle 15m\nwait 10m\n")
			if gone := after(entries, "config type", "", "infra-drift"); len(gone) > 0 {
				t.Errorf("replaced by what does not work: %v", gone[0])
			}
			if back := after(entries, "config type small", "", "the shard has settled"); len(back) != 1 {
				t.Errorf("it has not settled when it was taken back")
			}
		})
	}
}

// TestRefusedDeletesBackOff: refused deletes back off, don't delay others, and succeed when they are
// possible.
func TestRefusedDeletesBackOff(t *testing.T) {
	entries := told(t, twoServers+"config drain 0s\nrefresh\nwait 1m\nprovider keeps machines\nscale web 1\nwait 1h\nscale db 2\n"+
		"wait 1m\nprovider fair\nsettle 10m\n")
	if n := len(after(entries, "provider keeps", "", "which refuses")); n < 12 || n > 40 {
		t.Errorf("asked %d times in an hour, want about 20", n)
	}
	if took := registered(t, entries, "scale db", "db", 1); took > 15*time.Second {
		t.Errorf("another group's machine took %s", took)
	}
}

// TestThrottledCreatesKeepTheirIDs: creates that are throttled for minutes are retried with the same
// id, and none fails.
func TestThrottledCreatesKeepTheirIDs(t *testing.T) {
	entries := told(t, twoServers+"provider throttles\nscale web 5\nwait 3m\nprovider fair\nsettle 5m\n")
	made := 0
	for _, e := range after(entries, "scale web", "", " of web: pending") {
		if strings.HasPrefix(e.Text, "records") && strings.HasSuffix(e.Text, "pending") {
			made++
		}
	}
	if made != 3 {
		t.Errorf("%d instances were recorded for the three that were missing", made)
	}
}
