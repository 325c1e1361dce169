package shardtest_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestListingsEndNothing: whatever listings lack, and however late they are, no machine
// goes and none is made, through changes of leaders, sweeps and changes of other groups.
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

// TestLateListingOfAChange: a change that no listing shows yet is not undone by the next
// leader, nor one before it done again.
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

// TestTakeoverInARotation: a leader that comes while a group without a record has more than
// its size, because its instances are replaced, does not take that for a size that was lost.
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
