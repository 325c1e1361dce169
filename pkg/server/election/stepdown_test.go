package election

import (
	"slices"
	"testing"
	"time"
)

// at returns a time on a host whose clocks agree.
func at(d time.Duration) instant { return instant{least: d, most: d} }

// TestGiveUpAsks: when a leader asks the others while it lacks a need and no one could act.
func TestGiveUpAsks(t *testing.T) {
	const after = 30 * time.Second
	always := func(d time.Duration) time.Duration { return d }
	for name, c := range map[string]struct {
		after time.Duration
		lacks func(time.Duration) time.Duration // at a time
		until time.Duration
		want  []time.Duration
	}{
		"nothing is missing": {after, func(time.Duration) time.Duration { return 0 }, time.Hour, nil},
		"almost long enough": {after, func(time.Duration) time.Duration { return after - 1 }, time.Hour, nil},
		"it is switched off": {0, always, time.Hour, nil},
		"more and more rarely": {after, always, 20 * time.Minute,
			[]time.Duration{30 * time.Second, 90 * time.Second, 210 * time.Second, 450 * time.Second, 750 * time.Second, 1050 * time.Second}},
		"a long limit": {10 * time.Minute, always, 31 * time.Minute, []time.Duration{10 * time.Minute, 20 * time.Minute, 30 * time.Minute}},
		"it comes and goes": {after, func(d time.Duration) time.Duration { return d % time.Minute }, 5 * time.Minute,
			[]time.Duration{30 * time.Second, 90 * time.Second, 150 * time.Second, 210 * time.Second, 270 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			var g stepDown
			var got []time.Duration
			for now := time.Duration(0); now < c.until; now += time.Second {
				if g.pollStandbys(at(now), c.lacks(now), c.after) {
					got = append(got, now)
				}
			}
			if len(got) != len(c.want) {
				t.Fatalf("asked at %v, want %v", got, c.want)
			}
			for n := range got {
				if got[n] != c.want[n] {
					t.Errorf("asked at %v, want %v", got, c.want)
				}
			}
		})
	}
}

// TestGiveUpAsksWhoJoins: a server that joins during long pauses is asked soon, and one that
// joins repeatedly does not cause constant questions.
func TestGiveUpAsksWhoJoins(t *testing.T) {
	var g stepDown
	var got []time.Duration
	for now := time.Duration(0); now < 22*time.Minute; now += time.Second {
		if now > 15*time.Minute && now < 17*time.Minute {
			g.joined()
		}
		if g.pollStandbys(at(now), now, 30*time.Second) && now > 13*time.Minute {
			got = append(got, now)
		}
	}
	var want []time.Duration
	for _, minute := range []time.Duration{15, 16, 17, 19} {
		want = append(want, minute*time.Minute+time.Second)
	}
	if !slices.Equal(got, want) {
		t.Errorf("asked at %v, want %v", got, want)
	}
}

// TestGiveUpAccepts: which answers end a term.
func TestGiveUpAccepts(t *testing.T) {
	g := stepDown{}
	if g.accepts(at(0), 0) {
		t.Error("an answer to no question is accepted")
	}
	g.pollStandbys(at(time.Minute), time.Minute, time.Second)
	for _, c := range []struct {
		now  time.Duration
		id   uint64
		want bool
	}{
		{time.Minute, 1, true}, {2 * time.Minute, 1, true}, {121 * time.Second, 1, false},
		{time.Minute, 2, false}, {time.Minute, 0, false},
	} {
		if got := g.accepts(at(c.now), c.id); got != c.want {
			t.Errorf("answer to question %d at %s: %t, want %t", c.id, c.now, got, c.want)
		}
	}
	g.pollStandbys(at(2*time.Minute), 0, time.Second)
	if g.accepts(at(2*time.Minute), 1) {
		t.Error("an answer is accepted though nothing is missing any more")
	}
}

// TestGiveUpRests: a server that can never act, although others believe that they can, steps
// down at most every ten minutes, then twenty, and so on.
func TestGiveUpRests(t *testing.T) {
	var g stepDown
	var gave []time.Duration
	for now := time.Duration(0); now < 48*time.Hour; now += time.Second {
		if g.pollStandbys(at(now), time.Hour, time.Second); g.accepts(at(now), g.id) {
			g.done(at(now))
			gave = append(gave, now)
		}
	}
	rest := 10 * time.Minute
	for n := 1; n < len(gave); n++ {
		if apart := gave[n] - gave[n-1]; apart != min(rest, 6*time.Hour) {
			t.Errorf("time %d comes %s after the one before, want %s", n+1, apart, min(rest, 6*time.Hour))
		}
		rest *= 2
	}
	if len(gave) < 8 {
		t.Errorf("gave up %d times in two days: %v", len(gave), gave)
	}
	// Long after the last step-down the cooldown starts over.
	late := gave[len(gave)-1] + 24*time.Hour
	g.pollStandbys(at(late), time.Hour, time.Second)
	g.done(at(late))
	if g.cooldown != firstCooldown {
		t.Errorf("a day later it rests for %s, want %s", g.cooldown, firstCooldown)
	}
}

// TestClockJumpIsNoLack: only time that has certainly passed counts.
func TestClockJumpIsNoLack(t *testing.T) {
	var g stepDown
	g.done(at(0))
	if !g.resting(instant{least: time.Minute, most: time.Hour}) {
		t.Error("a wall clock set forward ended the rest")
	}
}

// TestGiveUpChanges: a changed give_up applies at once, and does not rewrite the record, which
// does not have it.
func TestGiveUpChanges(t *testing.T) {
	timing := Timing{RenewInterval: 10 * time.Second, LeaseDuration: 30 * time.Second, FenceWindow: time.Second}
	m := newMachine(Config{Holder: "me", Timing: timing})
	m.start(at(0))
	released := Record{Holder: "other", Epoch: 4, Rev: 7, LeaseDuration: time.Second, FenceWindow: time.Second, Released: true}
	m.gotRecord(at(0), m.opID, released, "e7", nil)
	m.putDone(at(0), m.opID, "e8", nil)
	if m.phase != leading {
		t.Fatalf("it is %s", m.phase)
	}
	m.lack = Lack{Need: NeedList, For: time.Minute}
	m.commands()
	timing.GiveUp = time.Minute
	m.retime(at(time.Second), timing)
	if out := m.commands(); len(out) != 1 || out[0] != (askPeers{id: 1}) {
		t.Errorf("it asks for %v, want a question alone", out)
	}
	timing.GiveUp = 2 * time.Minute
	m.retime(at(2*time.Second), timing)
	m.gotAnswer(at(2*time.Second), Answer{Server: "b", Leader: "me", Ask: 1, Ready: true})
	if out := m.commands(); len(out) != 0 || m.phase != leading {
		t.Errorf("it asks for %v and is %s, want it to go on", out, m.phase)
	}
}
