package asg_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/asg"
	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

// TestStandstill: time in which nstance-asg itself stood still, with its machine or alone,
// is no silence, and none that is kept.
func TestStandstill(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		w := newMachine(t)
		w.set(200)
		w.start(t, asg.DefaultLostAfter, file)
		time.Sleep(time.Minute)
		w.set(-2)
		time.Sleep(5 * time.Minute)
		w.set(0) // once more when all goes on
		time.Sleep(5*time.Minute + 10*time.Second)
		if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "m") {
			t.Errorf("kept is %q, %v, want some seconds", text, err)
		}
		w.set(200)
		time.Sleep(time.Minute)
		if m := w.member(t); m.Unhealthy {
			t.Errorf("lost after a standstill: %+v", m)
		}
		w.set(0)
		time.Sleep(asg.DefaultLostAfter + 10*time.Second)
		if m := w.member(t); !m.Unhealthy || w.end() != nil {
			t.Errorf("not lost: %+v", m)
		}
	})
}

// TestSlowCall: nor is the time that a call of AWS takes.
func TestSlowCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10*time.Second)
		w.FailNext("CompleteLifecycleAction", 1, awsfake.Fault{Delay: time.Hour})
		w.set(200)
		time.Sleep(6 * time.Second)
		w.set(0)
		time.Sleep(7 * time.Second) // one question after the call has been given up
		w.set(200)
		time.Sleep(time.Minute)
		if m := w.member(t); m.Unhealthy || m.Hook != "" || w.end() != nil || !strings.Contains(w.log.String(), "healthy=false") {
			t.Errorf("%+v, and the log is %s", m, w.log)
		}
	})
}

// TestSlowFailures: the wait after a call that failed begins when it has.
func TestSlowFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asg.DefaultLostAfter)
		w.FailNext("CompleteLifecycleAction", 5, awsfake.Fault{Delay: time.Hour})
		w.set(200)
		time.Sleep(5 * time.Minute)
		calls := w.Calls("CompleteLifecycleAction")
		if len(calls) < 6 || w.end() != nil {
			t.Fatalf("%d calls", len(calls))
		}
		for n, least := range []time.Duration{1, 2, 4, 8, 16} { // seconds, after 10 that each call takes
			if gap := calls[n+1].At.Sub(calls[n].At); gap < 10*time.Second+least*time.Second {
				t.Errorf("call %d comes %s after the one before", n+1, gap)
			}
		}
	})
}

// TestStateCannotBeKept: a folder that is not there costs the memory, and one line.
func TestStateCannotBeKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none", "state")
	synctest.Test(t, func(t *testing.T) {
		w := newMachine(t)
		w.set(200)
		w.start(t, asg.DefaultLostAfter, file)
		time.Sleep(time.Hour)
		w.set(0)
		time.Sleep(asg.DefaultLostAfter + time.Minute)
		if err := w.end(); err != nil || !w.member(t).Unhealthy {
			t.Errorf("ended with %v, and the server is not lost", err)
		}
		if n := strings.Count(w.log.String(), "can't be kept"); n != 1 {
			t.Errorf("%d lines say that nothing is kept, want one: %s", n, w.log)
		}
	})
}
