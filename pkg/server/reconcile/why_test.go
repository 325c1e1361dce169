package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
)

// TestDeathIsToldInTheProvidersWords: in the log line of the replacement and in the tombstone,
// truncated and in one line; no problem is reported for a machine that had registered.
func TestDeathIsToldInTheProvidersWords(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*fake.World, fleet.InstanceID) bool
		says string
		want string
	}{
		"down":       {(*fake.World).Kill, "exit code 137,\nout of memory\x1b", "vm-down: exit code 137, out of memory"},
		"gone":       {(*fake.World).Vanish, "Client.UserInitiatedShutdown", "vm-gone: Client.UserInitiatedShutdown"},
		"many words": {(*fake.World).Kill, strings.Repeat("x", 999), "vm-down: " + strings.Repeat("x", 253) + "…"},
		"no words":   {(*fake.World).Kill, "", "vm-down"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Config{Remember: time.Minute, Shutdown: fake.Fixed(time.Second)}, func(t *testing.T, s *shard) {
				s.size(web, 2)
				s.lead()
				pass(time.Minute)
				victim := s.expectRunning(web, 2)[0]
				s.world.Explain(victim, c.says)
				c.end(s.world, victim)
				pass(10 * time.Second)
				s.expectRunning(web, 2)
				if r, _ := s.bucket.get(victim); r.Phase != fleet.Deleted || r.Reason != c.want {
					t.Errorf("the record is %s because of %q, want %q", r.Phase, r.Reason, c.want)
				}
				lines := s.logged("replacement started")
				if len(lines) != 1 || !strings.HasSuffix(c.want, fmt.Sprint(lines[0]["why"])) || (lines[0]["why"] == "") != (c.says == "") {
					t.Errorf("replacement log: %v", lines)
				}
				if p := s.reported(problems.ReasonDied); len(p) != 0 {
					t.Errorf("problems: %v", p)
				}
			})
		})
	}
}

// TestYoungDeathIsAProblem: a machine that was created and ends before its agent registers is
// reported, once, with the reason.
func TestYoungDeathIsAProblem(t *testing.T) {
	bubble(t, fake.Config{Boot: fake.Fixed(10 * time.Second), Remember: time.Minute}, func(t *testing.T, s *shard) {
		s.size(web, 1)
		s.lead()
		pass(time.Second)
		young := s.records(web, fleet.Pending)
		if len(young) != 1 {
			t.Fatal(s.dump())
		}
		s.world.Explain(young[0], "Client.InvalidKMSKey.InvalidState")
		s.world.Fail(young[0])
		pass(5 * time.Minute)
		s.expectRunning(web, 1)
		found := s.reported(problems.ReasonDied)
		if len(found) != 1 || found[0].Group != web || found[0].Instance != young[0] ||
			!strings.Contains(found[0].Message, "vm-down: Client.InvalidKMSKey.InvalidState") {
			t.Errorf("problems: %v", found)
		}
		if r, _ := s.bucket.get(young[0]); r.Reason != "vm-down: Client.InvalidKMSKey.InvalidState" {
			t.Errorf("the record is %s because of %q", r.Phase, r.Reason)
		}
	})
}
