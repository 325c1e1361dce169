package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestStreak tells a group's life as words, each a second after the one before. A
// create begins with its first word: "a:refused", "a:accepted", "a:died", "a:settled".
// "a:began" only begins it.
func TestStreak(t *testing.T) {
	none, refused, young := plan.Pace{}, plan.Pace{Trials: 1}, plan.Pace{Trials: 1, Settling: true}
	trials := func(n int, settling bool) plan.Pace { return plan.Pace{Trials: n, Settling: settling} }
	for _, tt := range []struct {
		name, story string
		size        int
		want        plan.Pace // but for the moment
		level       int       // of the backoff
	}{
		{"one failure is none", "a:refused", 9, none, 0},
		{"two are", "a:refused b:refused", 9, refused, 1},
		{"one after the other they raise the wait", "a:refused b:refused c:refused d:refused", 9, refused, 3},
		{"together only once", "a:began b:began c:began d:began a:refused b:refused c:refused d:refused", 9, refused, 1},
		{"fewer than half are none", "a:settled b:settled c:settled d:refused e:refused", 9, none, 0},
		{"half are", "a:settled b:settled c:refused d:refused", 9, refused, 1},
		{"only the last twenty count", strings.Repeat("x:settled ", 100) + many(9, "refused"), 9, none, 0},
		{"and of these half", strings.Repeat("x:settled ", 100) + many(10, "refused"), 9, refused, 1},
		{"refusals end with an accepted create", "a:refused b:refused c:accepted", 9, trials(2, false), 0},
		{"but not with one that began before", "c:began a:refused b:refused c:accepted", 9, refused, 1},
		{"then one more for each", "a:refused b:refused c:accepted d:accepted e:accepted", 9, trials(4, false), 0},
		{"until that bounds nothing", "a:refused b:refused c:accepted d:accepted e:accepted", 4, none, 0},
		{"or is enough for any group", "a:refused b:refused " + many(63, "accepted"), 1000, none, 0},
		{"not a trial sooner", "a:refused b:refused " + many(62, "accepted"), 1000, trials(63, false), 0},
		{"deaths do not end with an accepted create", "a:died b:died c:accepted", 9, young, 1},
		{"but when one has settled", "a:died b:died c:accepted c:settled", 9, trials(2, true), 0},
		{"then with each that has", "a:died b:died c:settled d:accepted d:settled", 9, trials(3, true), 0},
		{"one death among refusals makes it deaths", "a:refused b:died c:accepted", 9, young, 1},
		{"later as well", "a:refused b:refused c:died d:accepted", 9, young, 2},
		{"what settles does not end refusals", "s:began a:refused b:refused s:settled", 9, refused, 1},
		{"when it is over the history begins anew", "a:died b:died c:settled d:died", 9, trials(2, true), 0},
		{"and may fail anew", "a:died b:died c:settled d:died e:died", 9, young, 1},
		{"a create that came about after all was no failure", "a:refused a:accepted b:refused", 9, none, 0},
		{"one of unknown outcome counts each time", "a:refused a:refused", 9, refused, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, now := tell(tt.story, tt.size)
			got := s.pace()
			if got.NotBefore.IsZero() != (tt.level == 0) || tt.level > 0 && got.NotBefore.Sub(s.raisedAt) != time.Duration(tt.level)*time.Hour {
				t.Errorf("at %s not before %s, want level %d", now, got.NotBefore, tt.level)
			}
			if got.NotBefore = (time.Time{}); got != tt.want {
				t.Errorf("pace is %+v, want %+v", got, tt.want)
			}
		})
	}
}

func many(n int, word string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "m%d:%s ", i, word)
	}
	return b.String()
}

// tell plays a story. The n-th wait is of n hours.
func tell(story string, size int) (s *streak, now time.Time) {
	s, now = &streak{}, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	began := map[string]time.Time{}
	for word := range strings.FieldsSeq(story) {
		now = now.Add(time.Second)
		name, what, _ := strings.Cut(word, ":")
		if began[name].IsZero() {
			began[name] = now
		}
		id := fleet.InstanceID(name)
		f := failedCreate{id: id, began: began[name], at: now, young: what == "died", reason: what, message: name}
		switch what {
		case "refused", "died":
			s.fail(f, func(n int) time.Duration { return time.Duration(n) * time.Hour })
		case "accepted":
			s.accept(id, began[name], size)
		case "settled":
			s.settle(id, now, size)
		}
	}
	return s, now
}

func TestConditionOfAStreak(t *testing.T) {
	s, now := tell("a:refused b:refused c:died", 9)
	got, ok := s.condition(now)
	want := fleet.CreatesFailing{Since: now.Add(-2 * time.Second), Failures: 3, Reason: "died", Message: "c", Next: now.Add(2 * time.Hour)}
	if !ok || got != want {
		t.Errorf("%+v %v, want %+v", got, ok, want)
	}
	if got, _ := s.condition(now.Add(3 * time.Hour)); !got.Next.IsZero() {
		t.Errorf("the probe is due, and yet the next one is to come at %s", got.Next)
	}
	s, now = tell("a:refused b:refused c:accepted", 9)
	if got, ok := s.condition(now); ok {
		t.Errorf("it is over: %+v", got)
	}
}
