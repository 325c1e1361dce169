package pacing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestStreak describes a group's history by words, a second apart. A create begins with its
// first word: "a:refused", "a:accepted", "a:died". An accepted one registers at once. "a:began"
// only begins it; "pass:40s" lets time pass. "a,b:died" is noticed together.
func TestStreak(t *testing.T) {
	none, refused := plan.Pace{}, plan.Pace{Probation: 1}
	width := func(n int) plan.Pace { return plan.Pace{Probation: n} }
	lasting := func(n int, proof time.Duration) plan.Pace {
		return plan.Pace{Probation: n, Settling: true, Proof: proof}
	}
	const first = 10 * time.Second // if none lived
	four, five := some("d", 4, 1, "died"), some("d", 5, 1, "died")
	for _, tt := range []struct {
		name, story string
		size        int
		want        plan.Pace // without NotBefore
		level       int       // of the backoff
	}{
		{"one refusal is none", "a:refused", 9, none, 0},
		{"two are", "a:refused b:refused", 9, refused, 1},
		{"one after the other they raise the wait", "a:refused b:refused c:refused d:refused", 9, refused, 3},
		{"together only once", "a:began b:began c:began d:began a:refused b:refused c:refused d:refused", 9, refused, 1},
		{"fewer than half are none", many(3, "accepted") + "d:refused e:refused", 9, none, 0},
		{"half are", many(2, "accepted") + "c:refused d:refused", 9, refused, 1},
		{"two of 200 that were accepted a moment ago are none", many(198, "accepted") + "x:refused y:refused", 200, none, 0},
		{"only the last twenty count", many(100, "accepted") + some("n", 9, 1, "refused"), 9, none, 0},
		{"and of these half", many(100, "accepted") + some("n", 10, 1, "refused"), 9, refused, 1},
		{"refusals end with an accepted create", "a:refused b:refused c:accepted", 9, width(2), 0},
		{"but not with one that began before", "c:began a:refused b:refused c:accepted", 9, refused, 1},
		{"the window doubles with each", "a:refused b:refused c:accepted d:accepted e:accepted", 9, width(8), 0},
		{"and halves with a refusal", "a:refused b:refused c:accepted d:accepted e:accepted f:refused", 9, width(4), 0},
		{"and with each", "a:refused b:refused " + many(5, "accepted") + "f:refused g:refused", 1000, width(8), 0},
		{"also with those that fail together", "a:refused b:refused " + many(5, "accepted") + "f,g:refused", 1000, width(8), 0},
		{"down to one", "a:refused b:refused c:accepted d:accepted e:refused f:refused", 9, refused, 1},
		{"until that bounds nothing", "a:refused b:refused c:accepted d:accepted", 4, none, 0},
		{"or is enough for any group", "a:refused b:refused " + many(6, "accepted"), 1000, none, 0},
		{"not one sooner", "a:refused b:refused " + many(5, "accepted"), 1000, width(32), 0},
		{"a create that came about after all was no failure", "a:refused a:accepted b:refused", 9, none, 0},
		{"one of unknown outcome counts each time", "a:refused a:refused", 9, refused, 1},
		{"a refusal and an early end are too few of either", "a:refused b:died", 9, none, 0},

		{"any group may lose three early", "a:died pass:1h b:died pass:1h c:died", 1, none, 0},
		{"but not four", "a:died pass:1h b:died pass:1h c:died pass:1h d:died", 6, lasting(1, first), 1},
		{"or half of it in one moment", four, 9, none, 0},
		{"but not more", five, 9, lasting(1, first), 1},
		{"and not in two moments", four + "pass:5s e:died", 10, lasting(1, first), 1},
		{"but beside those that any may lose", "a:died pass:1h b:died c:died d:died e:died", 10, none, 0},
		{"which count for a day", "a:died b:died c:died pass:24h d:died", 3, none, 0},
		{"to its end", "a:died b:died c:died pass:23h59m57s d:died", 3, lasting(1, first), 1},
		{"however soon one follows another", some("d", 9, 1, "died") + "pass:2s e:died pass:1s f:died", 40, lasting(1, first), 1},
		{"and a refusal adds none", four + "e:refused", 9, none, 0},
		{"nor after other refusals", "a:refused b:refused " + four + "e:refused", 9, refused, 6},
		{"a large group may lose a fifth", some("d", 8, 1, "died"), 40, none, 0},
		{"and no more", some("d", 9, 1, "died") + "pass:4s e:died", 40, lasting(1, first), 1},
		{"one that settles makes good one", "d0:died d1:died d2:died m:accepted pass:2m d3:died", 9, none, 0},
		{"two make good two, whichever is told first",
			"y:accepted pass:60s x:accepted d0:died pass:70s d1:died pass:60s d2:died pass:10s d3:died pass:10s d4:died", 6, none, 0},
		{"but no second one", "d0:died d1:died d2:died m:accepted pass:2m d3:died pass:9s d4:died", 6, lasting(1, first), 1},
		{"and none that comes after it", many(9, "accepted") + "pass:2m " + five, 9, lasting(1, first), 1},
		{"an accepted create is no success then", five + "m:accepted", 9, lasting(1, first), 1},
		{"but one that lasts", five + "m:accepted pass:10s", 9, lasting(2, first), 0},
		{"for longer than those that ended", "d4:accepted pass:1s " + five + "m:accepted pass:10s", 9, lasting(1, 16*time.Second), 1},
		{"whichever of them got oldest", "d0:accepted pass:20s " + five, 9, lasting(1, 42*time.Second), 1},
		{"each doubles the window", five + "m:accepted pass:10s n:accepted pass:10s", 9, lasting(4, first), 0},
		{"each of them once", five + "m:accepted pass:10s pass:1m pass:1h", 9, lasting(2, first), 0},
		{"one that is done is a success", five + "m:accepted m:done", 9, lasting(2, first), 0},
		{"and makes good one", "d0:died d1:died d2:died m:accepted m:done d3:died", 9, none, 0},
		{"so a pool of one-job machines may lose some", many(9, "accepted") + five + many(9, "done"), 9, none, 0},
		{"which is not over before enough is made good", five + "m:accepted n:accepted o:accepted pass:10s", 8, lasting(8, first), 0},
		{"but then", five + "m:accepted n:accepted o:accepted pass:2m", 8, none, 0},
		{"what was not still counts", five + "m:accepted n:accepted o:accepted pass:2m e0:died e1:died e2:died", 8, lasting(1, first), 1},
		{"but no more than the group has instances", some("d", 60, 1, "died") + many(6, "done"), 9, none, 0},
		{"each early end halves it", five + "m:accepted n:accepted pass:10s o:died", 9, lasting(2, first), 0},
		{"down to one again", five + "m:accepted pass:10s o:died", 9, lasting(1, first), 1},
		{"never longer than it takes to settle", "d4:accepted pass:100s " + five + "m:accepted pass:2m", 9, lasting(2, 210*time.Second), 0},
		{"one early end among refusals is none", "a:refused b:refused c:died d:accepted", 9, width(2), 0},
		{"more than it may lose make the others last", "a:refused b:refused " + five + "e:accepted", 9, lasting(1, first), 6},
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

// many returns a word for each of the instances m0, m1, … up to n.
func many(n int, word string) string { return some("m", n, 1, word) }

// some returns a word for each of n instances of a name, numbered in steps.
func some(name string, n, step int, word string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s%d:%s ", name, i*step, word)
	}
	return b.String()
}

// told is the state of a story.
type told struct {
	s          *failureWindow
	now        time.Time
	size       int
	began      map[string]time.Time
	registered map[string]time.Time // and alive
}

// tell plays a story. The n-th back-off is n hours. After each word the failure window is given
// the living instances, as in each pass.
func tell(story string, size int) (s *failureWindow, now time.Time) {
	x := &told{
		s: &failureWindow{}, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), size: size,
		began: map[string]time.Time{}, registered: map[string]time.Time{},
	}
	for word := range strings.FieldsSeq(story) {
		x.now = x.now.Add(time.Second)
		name, what, _ := strings.Cut(word, ":")
		if pause, err := time.ParseDuration(what); err == nil {
			x.now = x.now.Add(pause - time.Second)
		} else {
			x.play(strings.Split(name, ","), what)
		}
		x.s.survive(x.living(), plan.Settings{Settle: 2 * time.Minute}, size, x.now)
	}
	return x.s, x.now
}

func (x *told) play(names []string, what string) {
	var failed []Failure
	for _, name := range names {
		if x.began[name].IsZero() {
			x.began[name] = x.now
		}
		f := Failure{ID: fleet.InstanceID(name), Began: x.began[name], At: x.now, Young: what == "died", Reason: what, Message: name}
		if at, ok := x.registered[name]; ok {
			f.Age = x.now.Sub(at)
		}
		failed = append(failed, f)
		delete(x.registered, name)
	}
	wait := func(n int) time.Duration { return time.Duration(n) * time.Hour }
	switch id := failed[0].ID; what {
	case "refused":
		x.s.fail(failed, scene{wait: wait})
	case "died":
		x.s.fail(failed, scene{x.size, 2 * time.Minute, x.living, wait})
	case "done":
		x.s.done(id, x.now, x.size)
	case "accepted":
		x.registered[names[0]] = x.now
		x.s.accept(id, x.began[names[0]], x.size)
	}
}

func (x *told) living() (all []plan.Life) {
	for name, at := range x.registered {
		all = append(all, plan.Life{ID: fleet.InstanceID(name), Age: x.now.Sub(at)})
	}
	slices.SortFunc(all, func(a, b plan.Life) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return all
}

func TestConditionOfAStreak(t *testing.T) {
	s, now := tell("a:refused b:refused c:refused", 9)
	got, ok := s.condition(now)
	want := fleet.CreatesFailing{Since: now.Add(-2 * time.Second), Failures: 3, Reason: "refused", Message: "c", Next: now.Add(2 * time.Hour)}
	if !ok || got != want {
		t.Errorf("%+v %v, want %+v", got, ok, want)
	}
	if got, _ := s.condition(now.Add(3 * time.Hour)); !got.Next.IsZero() {
		t.Errorf("the probe is due, and yet the next one is to come at %s", got.Next)
	}
	s, now = tell("a:died pass:1h b:died pass:1h c:died pass:1h d:died e:died", 9)
	want = fleet.CreatesFailing{
		Since: now.Add(-3*time.Hour - 4*time.Second), Failures: 5, Reason: "died", Message: "e", Next: now.Add(time.Hour),
	}
	if got, ok := s.condition(now); !ok || got != want {
		t.Errorf("%+v %v, want %+v", got, ok, want)
	}
	s, now = tell("a:refused b:refused c:accepted pass:1m d:refused e:refused", 9)
	want = fleet.CreatesFailing{Since: now.Add(-time.Second), Failures: 2, Reason: "refused", Message: "e", Next: now.Add(2 * time.Hour)}
	if got, ok := s.condition(now); !ok || got != want {
		t.Errorf("once more: %+v %v, want %+v", got, ok, want)
	}
	s, now = tell("a:refused b:refused c:accepted", 9)
	if got, ok := s.condition(now); ok {
		t.Errorf("it is over: %+v", got)
	}
}
