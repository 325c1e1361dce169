package server_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// settling has instances settle for ten minutes.
func settling(s *site) {
	s.config[`"settle": "0s"`] = `"settle": "10m"`
	calm(s)
}

// TestRotatingIsTold: while a group rotates, its status and watches say how many instances are left and what
// the next one awaits: at that time, and not before, it leaves. A leader that takes over says so, too.
func TestRotatingIsTold(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, settling)
		machines := s.living()
		groups := p.watchGroups("default")
		s.retyped()
		p.refreshes(updated)
		for left, awaits := range []string{"2 instances are", "1 instance is"} {
			e, _ := groups.next("it awaits others", func(e *nstancev1.WatchGroupsResponse) bool {
				c := condition(e.GetGroup(), "Rotating")
				return c.GetReason() == fleet.AwaitsSettled && strings.HasPrefix(c.GetMessage(), awaits)
			})
			time.Sleep(time.Until(announcedIn(t, condition(e.GetGroup(), "Rotating"))) - time.Second)
			stay := func() bool {
				now := s.living()
				return !slices.ContainsFunc(machines[left:], func(id fleet.InstanceID) bool { return !slices.Contains(now, id) })
			}
			if !stay() {
				t.Errorf("of machines %v there are %v before the time that was told", machines[left:], s.living())
			}
			time.Sleep(10 * time.Second)
			if g := s.mustGroup(p, "web"); stay() && g.GetDrainingSize() == 0 {
				t.Errorf("none leaves at the time that was told: %v", g)
			}
		}
		groups.next("it is over", func(e *nstancev1.WatchGroupsResponse) bool {
			return e.GetGroup().GetUpToDateSize() == 2 && condition(e.GetGroup(), "Rotating") == nil
		})
	})
}

// announcedIn is the time in a condition's message.
func announcedIn(t *testing.T, c *nstancev1.Condition) time.Time {
	t.Helper()
	words := strings.Fields(c.GetMessage())
	at, err := time.Parse(time.RFC3339, words[len(words)-1])
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return at
}
