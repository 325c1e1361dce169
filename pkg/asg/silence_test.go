package asg_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/asg"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// TestStandstill: time in which nstance-asg itself was suspended, with or without its machine, does
// not count as silence, and is not stored.
func TestStandstill(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		f := newMachine(t)
		f.set(200)
		f.start(t, asg.DefaultLostAfter, file)
		time.Sleep(time.Minute)
		f.set(-2)
		time.Sleep(5 * time.Minute)
		f.set(0) // once more when everything continues
		time.Sleep(5*time.Minute + 10*time.Second)
		if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "m") {
			t.Errorf("kept is %q, %v, want some seconds", text, err)
		}
		f.set(200)
		time.Sleep(time.Minute)
		if m := f.member(t); m.Unhealthy {
			t.Errorf("lost after a standstill: %+v", m)
		}
		f.set(0)
		time.Sleep(asg.DefaultLostAfter + 10*time.Second)
		if m := f.member(t); !m.Unhealthy || f.end() != nil {
			t.Errorf("not lost: %+v", m)
		}
	})
}

// TestSlowCall: the duration of a call to AWS does not count as silence.
func TestSlowCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 10*time.Second)
		f.FailNext("CompleteLifecycleAction", 1, awstest.Fault{Delay: time.Hour})
		f.set(200)
		time.Sleep(6 * time.Second)
		f.set(0)
		time.Sleep(7 * time.Second) // one poll after the call was abandoned
		f.set(200)
		time.Sleep(time.Minute)
		if m := f.member(t); m.Unhealthy || m.Hook != "" || f.end() != nil || !strings.Contains(f.log.String(), "healthy=false") {
			t.Errorf("%+v, and the log is %s", m, f.log)
		}
	})
}

// TestSlowFailures: the back-off begins at the end of a failed call.
func TestSlowFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, asg.DefaultLostAfter)
		f.FailNext("CompleteLifecycleAction", 5, awstest.Fault{Delay: time.Hour})
		f.set(200)
		time.Sleep(5 * time.Minute)
		calls := f.Calls("CompleteLifecycleAction")
		if len(calls) < 6 || f.end() != nil {
			t.Fatalf("%d calls", len(calls))
		}
		for n, least := range []time.Duration{1, 2, 4, 8, 16} { // seconds, after 10 that each call takes
			if gap := calls[n+1].At.Sub(calls[n].At); gap < 10*time.Second+least*time.Second {
				t.Errorf("call %d comes %s after the one before", n+1, gap)
			}
		}
	})
}

// TestStateCannotBeKept: without the state's folder, only the state is lost, and one line is
// logged.
func TestStateCannotBeKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none", "state")
	synctest.Test(t, func(t *testing.T) {
		f := newMachine(t)
		f.set(200)
		f.start(t, asg.DefaultLostAfter, file)
		time.Sleep(time.Hour)
		f.set(0)
		time.Sleep(asg.DefaultLostAfter + time.Minute)
		if err := f.end(); err != nil || !f.member(t).Unhealthy {
			t.Errorf("ended with %v, and the server is not lost", err)
		}
		if n := strings.Count(f.log.String(), "writing the state file failed"); n != 1 {
			t.Errorf("%d lines say that nothing is kept, want one: %s", n, f.log)
		}
	})
}
