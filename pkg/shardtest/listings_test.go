package shardtest_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestListingsEndNothing: incomplete and late listings remove and create no machine, across
// changes of leaders, sweeps and changes of other groups.
func TestListingsEndNothing(t *testing.T) {
	for _, kind := range []string{"instance", "groups", "request", "cluster"} {
		for _, fault := range []string{"lack 100", "lack 50", "late 20s", "late 10m"} {
			t.Run(kind+" "+fault, func(t *testing.T) {
				t.Parallel()
				story := twoServers + "group batch 3\nscale web 4\ncreate db k1\nsettle 5m\nlistings " + kind + " " + fault + "\n" +
					"wait 5s\ncrash leader\nwait 5m\ncreate db k1\nstart a\nwait 10s\nstop b\nwait 5m\nstart b\nsettle 5m\n" +
					"listings fair\nwait 5m\nsettle 5m\n"
				entries := told(t, story)
				for _, e := range after(entries, "listings "+kind, "", "") {
					made, gone := strings.HasPrefix(e.Text, "asks the provider to"), strings.Contains(e.Text, ": running to ")
					if made || gone && strings.HasPrefix(e.Text, "records") {
						t.Errorf("%s %s", e.Actor, e.Text)
					}
				}
			})
		}
	}
}

// TestLateListingOfAChange: the next leader neither reverts a change that no listing shows yet,
// nor repeats an earlier one.
func TestLateListingOfAChange(t *testing.T) {
	for _, late := range []string{"20s", "10m"} {
		t.Run(late, func(t *testing.T) {
			t.Parallel()
			story := twoServers + "group batch 1\nscale web 1\nsettle 5m\nlistings groups late " + late + "\nlistings instance late " + late + "\n" +
				"scale web 5\ngroup batch 4\nwait 25s\ncrash leader\nwait 5m\nsettle 5m\nlistings fair\nwait 5m\nsettle 5m\n"
			entries := told(t, story)
			if gone := after(entries, "scale web 5", "", ": running to "); len(gone) > 0 {
				t.Errorf("%d went, first: %s", len(gone), gone[0].Text)
			}
			made := map[string]int{}
			for _, e := range entries {
				var id, group string
				if _, err := fmt.Sscanf(e.Text, "records %s of %s pending", &id, &group); err == nil && strings.HasSuffix(e.Text, ": pending") {
					made[group]++
				}
			}
			if made["web:"] != 6 || made["batch:"] != 4 {
				t.Errorf("made of each group: %v, want 6 of web, of which 1 was left, and 4 of batch", made)
			}
		})
	}
}

// TestTakeoverInARotation: if a group without a record exceeds its size because of a rotation, a
// new leader does not conclude that its override was lost.
func TestTakeoverInARotation(t *testing.T) {
	for _, wait := range []string{"2s", "15s", "40s"} {
		t.Run(wait, func(t *testing.T) {
			t.Parallel()
			entries := told(t, twoServers+"config type other\nrefresh\nwait "+wait+"\ncrash leader\nwait 2m\nstart a\nstart b\nsettle 30m\n")
			surge, left := len(after(entries, "config type", "", "of web: pending")), len(after(entries, "config type", "", "of web: running to "))
			if surge == 0 || left < 2 {
				t.Errorf("%d of web were made and %d left: no rotation", surge, left)
			}
			if missing := after(entries, "config type", "", "GroupRecordMissing"); len(missing) > 0 {
				t.Errorf("%s %s", missing[0].Actor, missing[0].Text)
			}
		})
	}
}

// TestLateListingOfAReplacement: a former leader remembers an instance that is gone, and a late
// listing shows it, but not its replacement. The replacement is found by its machine, and the
// group does not seem to exceed its size.
func TestLateListingOfAReplacement(t *testing.T) {
	t.Parallel()
	entries := told(t, "start b\nsettle 2m\nstart a\nwait 10s\ncut b store\nwait 1m\njoin b store\nsettle 2m\n"+
		"vm dies i2\nwait 90s\nlistings instance late 2m\ncrash a\nwait 5m\nlistings fair\nwait 5m\nsettle 5m\n")
	for _, e := range after(entries, "listings instance", "b-1", "") {
		if strings.HasPrefix(e.Text, "records i") {
			t.Errorf("%s %s", e.Actor, e.Text)
		}
	}
}
