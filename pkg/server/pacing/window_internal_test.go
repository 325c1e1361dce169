package pacing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestStreak describes a group's history by words, a second apart. A create begins with its
// first word: "a:refused", "a:accepted", "a:died". An accepted one registers at once. "a:began"
// only begins it; "pass:40s" lets time pass.
func TestStreak(t *testing.T) {
	none, refused := plan.Pace{}, plan.Pace{Probation: 1}
	young := func(proof time.Duration) plan.Pace { return plan.Pace{Probation: 1, Settling: true, Proof: proof} }
	probation := func(n int) plan.Pace { return plan.Pace{Probation: n} }
	lasting := func(n int, proof time.Duration) plan.Pace {
		return plan.Pace{Probation: n, Settling: true, Proof: proof}
	}
	const first, second = 10 * time.Second, 12 * time.Second // if none lived, and if one died at 2 s
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
		{"refusals end with an accepted create", "a:refused b:refused c:accepted", 9, probation(2), 0},
		{"but not with one that began before", "c:began a:refused b:refused c:accepted", 9, refused, 1},
		{"then one more for each", "a:refused b:refused c:accepted d:accepted e:accepted", 9, probation(4), 0},
		{"until that bounds nothing", "a:refused b:refused c:accepted d:accepted e:accepted", 4, none, 0},
		{"or is enough for any group", "a:refused b:refused " + many(63, "accepted"), 1000, none, 0},
		{"not one sooner", "a:refused b:refused " + many(62, "accepted"), 1000, probation(63), 0},
		{"a create that came about after all was no failure", "a:refused a:accepted b:refused", 9, none, 0},
		{"one of unknown outcome counts each time", "a:refused a:refused", 9, refused, 1},
		{"a refusal and a death are no streak of either", "a:refused b:died", 9, none, 0},

		{"one death is none", "a:died", 9, none, 0},
		{"two are, where none has lived", "a:died b:died", 9, young(first), 1},
		{"two are not among 200 that are as young", many(200, "accepted") + "m7:died m8:died", 200, none, 0},
		{"nor is every second of them", many(40, "accepted") + some("m", 20, 2, "died"), 40, none, 0},
		{"but most of them are", many(40, "accepted") + "pass:1m " + many(30, "died"), 40, young(200 * time.Second), 1},
		{"until the others have outlived them", many(9, "accepted") + "m0:died m1:died m2:died m3:died pass:10s", 9, none, 0},
		{"replacements that all die are, beside any number that live",
			many(200, "accepted") + "a:accepted a:died b:accepted b:died c:accepted c:died", 201, young(11 * time.Second), 1},
		{"deaths do not end with an accepted create", "a:died b:died c:accepted", 9, young(first), 1},
		{"but when one has lasted", "a:died b:died c:accepted pass:10s", 9, lasting(2, first), 0},
		{"for longer than those that died", "a:accepted pass:1s a:died b:died c:accepted pass:10s", 9, young(second), 1},
		{"for long enough", "a:accepted pass:1s a:died b:died c:accepted pass:12s", 9, lasting(2, second), 0},
		{"then with each that has", "a:died b:died c:accepted pass:10s d:accepted pass:10s", 9, lasting(3, first), 0},
		{"each of them once", "a:died b:died c:accepted pass:10s pass:1m pass:1h", 9, lasting(2, first), 0},
		{"never longer than it takes to settle", "a:accepted pass:100s a:died b:died c:accepted pass:2m", 9, lasting(2, 202*time.Second), 0},
		{"one death among refusals is none", "a:refused b:refused c:died d:accepted", 9, probation(2), 0},
		{"two make it deaths", "a:refused b:refused c:died d:died e:accepted", 9, young(first), 2},
		{"when it is over the history begins anew", "a:died b:died c:accepted pass:10s d:died", 9, lasting(2, first), 0},
		{"and may fail anew", "a:died b:died c:accepted pass:10s d:died e:died", 9, young(first), 1},
		{"a death is forgotten after an hour", "a:died pass:61m b:died", 9, none, 0},
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
			x.play(name, what)
		}
		x.s.survive(x.living(), plan.Settings{Settle: 2 * time.Minute}, size, x.now)
	}
	return x.s, x.now
}

func (x *told) play(name, what string) {
	if x.began[name].IsZero() {
		x.began[name] = x.now
	}
	id := fleet.InstanceID(name)
	f := Failure{ID: id, Began: x.began[name], At: x.now, Young: what == "died", Reason: what, Message: name}
	if at, ok := x.registered[name]; ok {
		f.Age = x.now.Sub(at)
	}
	switch what {
	case "refused", "died":
		delete(x.registered, name)
		x.s.fail([]Failure{f}, x.living(), func(n int) time.Duration { return time.Duration(n) * time.Hour })
	case "accepted":
		x.registered[name] = x.now
		x.s.accept(id, x.began[name], x.size)
	}
}

func (x *told) living() (all []plan.Life) {
	for name, at := range x.registered {
		all = append(all, plan.Life{ID: fleet.InstanceID(name), Began: x.began[name], Age: x.now.Sub(at)})
	}
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
	s, now = tell("a:refused b:refused c:accepted", 9)
	if got, ok := s.condition(now); ok {
		t.Errorf("it is over: %+v", got)
	}
}
