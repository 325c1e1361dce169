package shardtest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/shardtest"
)

// told plays a script in a shard of two servers, with all logs, and returns the timeline.
func told(t *testing.T, story string) (entries []shardtest.Entry) {
	t.Helper()
	play(t, story, shardtest.Options{Logs: true}, func(s *shardtest.Shard) { entries = s.Timeline.Entries() })
	return entries
}

// after returns the entries of actor with text that come after the first line of
// the driver's that begins with from.
func after(entries []shardtest.Entry, from, actor, text string) (found []shardtest.Entry) {
	begun := false
	for _, e := range entries {
		begun = begun || e.Actor == "driver" && strings.HasPrefix(e.Text, from)
		if begun && (actor == "" || e.Actor == actor) && strings.Contains(e.Text, text) {
			found = append(found, e)
		}
	}
	return found
}

const twoServers = "start a\nsettle 2m\nstart b\nwait 10s\n"

// TestSlowWritesAreHandedOver: the leader's writes take longer than the fence window, the other
// server's do not.
func TestSlowWritesAreHandedOver(t *testing.T) {
	entries := told(t, twoServers+"puts a take 1200ms\nscale web 3\nwait 2m\n")
	began := after(entries, "puts a", "driver", "puts a")
	taken, made := after(entries, "puts a", "b-1", "takes the lead"), after(entries, "puts a", "b-1", "asks the provider to create")
	if len(taken) != 1 || len(made) != 1 {
		t.Fatalf("b took the lead %d times and created %d machines, want 1 each", len(taken), len(made))
	}
	if took := made[0].At - began[0].At; took > 40*time.Second {
		t.Errorf("the machine was asked for after %s, want the 30 s of give_up and a few more", took)
	}
}

// TestBrownoutKeepsTheLead: no server can act for hours, so the leader does not change.
func TestBrownoutKeepsTheLead(t *testing.T) {
	for name, c := range map[string]struct {
		fault string
		hours int
	}{
		"lists fail":      {"lists a fail\nlists b fail\n", 6},
		"writes are slow": {"puts a take 1200ms\nputs b take 1200ms\nscale web 3\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			first, _, _ := strings.Cut(c.fault, "\n")
			entries := told(t, fmt.Sprintf("%s%swait %dh\nheal\nsettle 10m\n", twoServers, c.fault, c.hours))
			if taken := after(entries, first, "", "takes the lead"); len(taken) > 0 {
				t.Errorf("the lead changed %d times: %v", len(taken), taken[0])
			}
			asked := after(entries, first, "b-1", "find out whether this server could act")
			if len(asked) < 6 || len(asked) > c.hours*60/5+10 {
				t.Errorf("the standby was asked %d times, want about every five minutes", len(asked))
			}
			if len(after(entries, first, "a-1", "LeaderStuck")) == 0 {
				t.Error("the leader reports no problem")
			}
		})
	}
}

// TestPagesAreProgress: a list with a page every 20 s completes, and the leader keeps the lead.
func TestPagesAreProgress(t *testing.T) {
	entries := told(t, twoServers+"lists a crawl 20s\nstop b\nstart b\nwait 1h\nscale web 3\nsettle 5m\n")
	if asked := after(entries, "lists a", "", "whether it could act"); len(asked) > 0 {
		t.Errorf("standbys were asked: %v", asked[0])
	}
	if taken := after(entries, "lists a", "", "takes the lead"); len(taken) > 0 {
		t.Errorf("the lead changed: %v", taken[0])
	}
}

// TestIdleLeaderIsNotStuck: a leader that has nothing to do probes no standby.
func TestIdleLeaderIsNotStuck(t *testing.T) {
	entries := told(t, twoServers+"wait 6h\n")
	if asked := after(entries, "start b", "", "whether it could act"); len(asked) > 0 {
		t.Errorf("standbys were asked: %v", asked[0])
	}
}

// TestGivesUpOnce: a server that released the lead and got it back keeps it for the cooldown of
// ten minutes, although it can't act.
func TestGivesUpOnce(t *testing.T) {
	entries := told(t, twoServers+"lists a fail\nwait 2m\nstop b\nwait 10s\nstart b\nwait 20m\n")
	gave := after(entries, "lists a", "a-1", "releases the lead")
	if len(gave) != 2 {
		t.Fatalf("a released the lead %d times, want once before and once after its rest: %v", len(gave), gave)
	}
	if apart := gave[1].At - gave[0].At; apart < 10*time.Minute || apart > 16*time.Minute {
		t.Errorf("a gave up the lead again after %s, want ten minutes and not much more", apart)
	}
}
