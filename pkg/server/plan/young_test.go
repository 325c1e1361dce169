package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/fleet"
	_ "github.com/nstance/nstance/pkg/rapidseed"
	"github.com/nstance/nstance/pkg/server/plan"
)

// fates parses deaths and survivors: "3x2s" are three that died at the age of 2 s, well before
// the following ones began; "2x2s and 1x1m" died in one moment; "5x1m live" are five survivors.
func fates(t *testing.T, text string) (died []plan.Death, living []plan.Life) {
	t.Helper()
	at := now
	for part := range strings.SplitSeq(text, ", ") {
		part, lives := strings.CutSuffix(part, " live")
		for alike := range strings.SplitSeq(part, " and ") {
			var count int
			var age string
			if _, err := fmt.Sscanf(alike, "%dx%s", &count, &age); err != nil {
				t.Fatalf("%q: %v", alike, err)
			}
			life := plan.Life{Began: at, Age: span(t, age)}
			for range count {
				if lives {
					living = append(living, life)
				} else {
					died = append(died, plan.Death{Life: life, At: at.Add(time.Second)})
				}
			}
		}
		at = at.Add(10 * time.Second)
	}
	return died, living
}

func TestDyingYoung(t *testing.T) {
	for _, tt := range []struct {
		name, fates string
		want        bool
	}{
		{"one death says nothing", "1x2s", false},
		{"all die at 2 s", "2x2s", true},
		{"all die at 2 s, and the others are younger", "2x2s, 98x1s live", true},
		{"two of 200 that live", "198x1m live, 2x2s", false},
		{"two, the first of which others have outlived", "18x11s live, 1x10s, 1x11s", false},
		{"20 of 300 that are as old", "280x1m live, 20x1m", true}, // the others are not older yet
		{"20 of 300 at once", "280x60.001s live, 20x1m", false},
		{"half at once", "100x60.001s live, 100x1m", false},
		{"half", "100x1m live, 100x30s", false},
		{"most", "10x1m live, 90x10s", true},
		{"the two oldest and half of the younger ones, in one moment", "48x59s live, 2x1m and 50x58s", false},
		{"most in one moment", "10x59s live, 2x1m and 88x58s", true},
		{"the older half in one moment", "50x58s live, 25x1m and 25x59s", true}, // until the others are as old
		{"the older half in one moment, after which the others live", "50x59.001s live, 25x1m and 25x59s", false},
		{"none has outlived the two oldest", "100x50s live, 10x2s, 2x1m", true},
		{"they never register", "2x0s", true},
		{"two never register, others do", "5x1s live, 2x0s", false},
		{"a replacement dies too", "200x1h live, 1x2s, 1x2s", false},
		{"and the one after it", "200x1h live, 1x2s, 1x2s, 1x2s", true},
		{"later replacements that live outweigh it", "200x1h live, 1x2s, 1x2s, 1x2s, 3x3s live", false},
		{"earlier ones do not", "200x1h live, 1x2s, 9x3s live, 1x2s, 1x2s, 1x2s", true},
	} {
		died, living := fates(t, tt.fates)
		if got := plan.DyingYoung(died, living); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// lot is one instance of a random history.
type lot struct {
	began time.Duration // since the history began
	age   time.Duration
	dies  bool
}

func anyLots(least, most int) *rapid.Generator[[]lot] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) lot {
		return lot{
			began: time.Duration(rapid.IntRange(0, 30).Draw(t, "began")) * time.Second,
			age:   time.Duration(rapid.IntRange(0, 20).Draw(t, "age")) * time.Second,
			dies:  rapid.Bool().Draw(t, "dies"),
		}
	}), least, most)
}

// history returns the deaths, in the order in which they were noticed, and the survivors.
func history(lots []lot) (died []plan.Death, living []plan.Life) {
	for n, l := range lots {
		life := plan.Life{ID: fleet.InstanceID(fmt.Sprint(n)), Began: now.Add(l.began), Age: l.age}
		if l.dies {
			died = append(died, plan.Death{Life: life, At: life.Began.Add(l.age)})
		} else {
			living = append(living, life)
		}
	}
	slices.SortStableFunc(died, func(a, b plan.Death) int { return a.At.Compare(b.At) })
	return died, living
}

// TestSurvivorsAndDeathsWeighOneWay: an additional or older survivor never makes the result true,
// and an additional death never makes it false, unless it is younger than others of its moment.
func TestSurvivorsAndDeathsWeighOneWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		died, living := history(anyLots(2, 25).Draw(t, "lots"))
		was := plan.DyingYoung(died, living)

		more := anyLots(1, 1).Draw(t, "more")[0]
		life := plan.Life{Began: now.Add(more.began), Age: more.age}
		if !was && plan.DyingYoung(died, append(slices.Clone(living), life)) {
			t.Fatalf("a survivor of %s makes a streak of\n%v\n%v", more.age, died, living)
		}
		older := slices.Clone(living)
		for n := range older {
			older[n].Age += more.age
		}
		if !was && plan.DyingYoung(died, older) {
			t.Fatalf("those that live are %s older, which makes a streak of\n%v\n%v", more.age, died, living)
		}
		if !was {
			return
		}
		last := died[len(died)-1].At.Add(time.Minute)
		if !plan.DyingYoung(append(slices.Clone(died), plan.Death{Life: life, At: last}), living) {
			t.Fatalf("a death at %s ends the streak of\n%v\n%v", more.age, died, living)
		}
		oldest := life
		for _, d := range died {
			oldest.Age = max(oldest.Age, d.Age)
		}
		if !plan.DyingYoung(append(slices.Clone(died), plan.Death{Life: oldest, At: died[len(died)-1].At}), living) {
			t.Fatalf("a death at %s in the moment of the last ends the streak of\n%v\n%v", oldest.Age, died, living)
		}
		if n := len(living); n > 0 {
			one := rapid.IntRange(0, n-1).Draw(t, "one")
			rest := slices.Delete(slices.Clone(living), one, one+1)
			if !plan.DyingYoung(append(slices.Clone(died), plan.Death{Life: living[one], At: last}), rest) {
				t.Fatalf("the death of %v ends the streak of\n%v\n%v", living[one], died, living)
			}
		}
	})
}

// TestWellAtHalfIsNoStreak: while no more have died than have outlived them, the result is false,
// whatever the ages.
func TestWellAtHalfIsNoStreak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lots := anyLots(1, 20).Draw(t, "lots")
		var oldest time.Duration
		for n := range lots {
			lots[n].began, lots[n].dies = 0, true
			oldest = max(oldest, lots[n].age)
		}
		for range len(lots) {
			lots = append(lots, lot{age: oldest + time.Duration(rapid.IntRange(1, 9).Draw(t, "older"))*time.Second})
		}
		if died, living := history(lots); plan.DyingYoung(died, living) {
			t.Fatalf("%v are a streak beside %v", died, living)
		}
	})
}

// TestRefutedIn: it is the first time, to within a step, at which the survivors refute the deaths.
func TestRefutedIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		died, living := history(anyLots(2, 25).Draw(t, "lots"))
		after, ok := plan.RefutedIn(died, living)
		in := func(d time.Duration) bool {
			older := slices.Clone(living)
			for n := range older {
				older[n].Age += d
			}
			return !plan.DyingYoung(died, older)
		}
		switch {
		case !ok && in(time.Hour):
			t.Fatalf("%v will be refuted by %v", died, living)
		case ok && !in(after):
			t.Fatalf("%v is not refuted by %v after %s", died, living, after)
		case ok && after > time.Second && in(after-time.Second):
			t.Fatalf("%v is refuted by %v before %s", died, living, after)
		}
	})
}
