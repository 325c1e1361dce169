package asg_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/asg"
	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/awsclient/iam"
	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

// TestNext: what is done at each moment, one character for each look, a minute apart, and
// a server is lost after three. H is healthy, i ill, and a dot is silence.
func TestNext(t *testing.T) {
	for _, c := range []struct {
		name       string
		seen, acts string // C completes, R replaces; the calls succeed
		hook       bool
	}{
		{"comes up", "..iiHHH", "....C..", true},
		{"without a hook", "..iiHHH", ".......", false},
		{"never comes up", "..........", "..........", true},
		{"is never healthy", "iiii......", "..........", true},
		{"is lost", "HH......H...", "C...R.......", true},
		{"is ill for long", "Hiiiiiiiiiii", "C...........", true},
		{"is ill, then lost", "Hii.....", "C....R..", true},
		{"comes back in time", "H..H..H..i..i", "C............", true},
	} {
		s, acts := asg.State{Completed: !c.hook}, ""
		for _, r := range c.seen {
			var action asg.Action
			s, action = s.Next(time.Minute, map[rune]asg.Seen{'H': asg.Healthy, 'i': asg.Ill, '.': asg.Silent}[r], 3*time.Minute)
			acts += map[asg.Action]string{asg.Wait: ".", asg.Complete: "C", asg.Replace: "R"}[action]
			s.Completed = s.Completed || action == asg.Complete
			s.Replaced = s.Replaced || action == asg.Replace
		}
		if acts != c.acts {
			t.Errorf("%s: %s gives %s, want %s", c.name, c.seen, acts, c.acts)
		}
	}
	// What AWS does not take is tried again.
	s := asg.State{}
	for range 3 {
		next, action := s.Next(time.Second, asg.Healthy, time.Minute)
		if action != asg.Complete {
			t.Errorf("a hook that was not completed: %v", action)
		}
		s = next
	}
}

// host is a server that answers with a status: 0 refuses, -1 hangs, and at -2 it refuses
// after ten minutes in which nstance-asg stands still as well.
type host struct {
	mu     sync.Mutex
	status int
}

func (h *host) set(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

func (h *host) Do(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	status := h.status
	h.mu.Unlock()
	switch status {
	case 0:
		return nil, errors.New("connection refused")
	case -1:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case -2:
		time.Sleep(10 * time.Minute)
		return nil, errors.New("connection refused")
	default:
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("starting: config\n"))}, nil
	}
}

// world is a machine of a group, and who speaks for it.
type world struct {
	*awsfake.Cloud
	*host
	id  string
	log *bytes.Buffer // to be read once Run has ended
	end func() error
}

func newWorld(t *testing.T, lostAfter time.Duration) *world {
	t.Helper()
	w := newMachine(t)
	w.start(t, lostAfter, "")
	return w
}

// newMachine is a machine of a group for which nobody speaks yet.
func newMachine(t *testing.T) *world {
	t.Helper()
	cfg := awsfake.Config{Region: "eu-central-1", Policies: awsclienttest.Rights(t, "eu-central-1", nil, iam.SectionWatchdog)}
	w := &world{Cloud: awsfake.New(cfg), host: &host{}, log: &bytes.Buffer{}}
	w.id = w.Plant("subnet-0000000a", nil, false)
	w.Scaling.Tag("g", map[string]string{"nstance:managed": "true", "nstance:cluster-id": awsclienttest.Cluster})
	if err := w.Scaling.Join(w.id, "g", "launch"); err != nil {
		t.Fatal(err)
	}
	return w
}

// start begins to speak for it.
func (w *world) start(t *testing.T, lostAfter time.Duration, state string, change ...func(*asg.Config)) {
	t.Helper()
	cfg := asg.Config{
		Group: "g", Hook: "launch", InstanceID: w.id, HealthURL: asg.DefaultHealthURL, Every: asg.DefaultEvery, LostAfter: lostAfter,
		StateFile: state, AWS: awsclienttest.Serve(t, w.Cloud, "eu-central-1"), HTTP: w.host, Logger: slog.New(slog.NewTextHandler(w.log, nil)),
	}
	for _, apply := range change {
		apply(&cfg)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- asg.Run(ctx, cfg) }()
	w.end = func() error { cancel(); return <-ended }
}

func (w *world) member(t *testing.T) awsfake.Member {
	t.Helper()
	m, err := w.Scaling.Member(w.id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestLife: a machine comes into service when its server is healthy, and leaves when
// nothing answers any more.
func TestLife(t *testing.T) {
	for name, silence := range map[string]int{"refuses": 0, "hangs": -1} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, asg.DefaultLostAfter)
			pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
			pass(10 * time.Minute)
			w.set(503)
			pass(10 * time.Minute)
			if m := w.member(t); m.Hook != "launch" || m.Unhealthy {
				t.Errorf("%s, before it is healthy: %+v", name, m)
			}
			w.set(200)
			pass(10 * time.Second)
			if m := w.member(t); m.Hook != "" || m.Abandoned || m.Unhealthy {
				t.Errorf("%s, healthy: %+v", name, m)
			}
			w.set(503)
			pass(time.Hour)
			w.set(silence)
			pass(asg.DefaultLostAfter - 10*time.Second)
			if m := w.member(t); m.Unhealthy {
				t.Errorf("%s, silent for less than is allowed: %+v", name, m)
			}
			pass(20 * time.Second)
			if m := w.member(t); !m.Unhealthy || m.Spared {
				t.Errorf("%s, silent: %+v", name, m)
			}
			pass(time.Hour)
			if a, b := len(w.Calls("CompleteLifecycleAction")), len(w.Calls("SetInstanceHealth")); a != 1 || b != 1 {
				t.Errorf("%s: %d and %d calls, want one each", name, a, b)
			}
			if err := w.end(); err != nil {
				t.Errorf("%s: ended with %v", name, err)
			}
		})
	}
}

// TestAWSFails: what AWS does not take is tried again, less and less often.
func TestAWSFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asg.DefaultLostAfter)
		w.FailNext("CompleteLifecycleAction", 3, awsfake.Fault{Code: "AccessDenied", Status: 403, Message: "no"})
		w.FailNext("CompleteLifecycleAction", 1, awsfake.Fault{Lost: true})
		w.FailNext("SetInstanceHealth", 2, awsfake.Fault{Code: "Throttling", Status: 400})
		w.set(200)
		time.Sleep(2 * time.Minute)
		if m := w.member(t); m.Hook != "" || len(w.Calls("CompleteLifecycleAction")) < 5 { // from the fifth on it is done
			t.Errorf("%+v after %d calls", m, len(w.Calls("CompleteLifecycleAction")))
		}
		w.set(0)
		time.Sleep(asg.DefaultLostAfter + time.Minute)
		if m := w.member(t); !m.Unhealthy || len(w.Calls("SetInstanceHealth")) != 3 {
			t.Errorf("%+v after %d calls", m, len(w.Calls("SetInstanceHealth")))
		}
		err := w.end()
		for _, says := range []string{"AccessDenied", "hook is not active"} {
			if err != nil || !strings.Contains(w.log.String(), says) {
				t.Errorf("ended with %v; the log does not say %s: %s", err, says, w.log)
			}
		}
	})
}

// TestCrashLoop: systemd starts nstance-asg again whenever it starts the server again. With
// a state file a server that was healthy is lost all the same, and one that never was, or
// answers once in a while, is not.
func TestCrashLoop(t *testing.T) {
	for _, c := range []struct {
		name       string
		first      int // what the server answers before it crashes
		once       int // and what once in two minutes
		late       int // and what a moment after each start
		state      bool
		kept       string // what is in the file then; empty: as it was written
		lost, warn bool
	}{
		{"was healthy", 200, 0, 0, true, "", true, false},
		{"nothing is kept", 200, 0, 0, false, "", false, false},
		{"never was healthy", 503, 0, 0, true, "", false, false},
		{"says what is missing", 200, 503, 0, true, "", false, false},
		{"says what is missing, each time", 200, 0, 503, true, "", false, false},
		{"is healthy, each time", 200, 0, 200, true, "", false, false},
		{"a file of another", 200, 0, 0, true, "hello", false, true},
		{"an empty file", 200, 0, 0, true, " ", false, true},
		{"less than nothing", 200, 0, 0, true, "silent -9h", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "state")
			synctest.Test(t, func(t *testing.T) {
				w, state := newMachine(t), ""
				if c.state {
					state = file
				}
				w.set(c.first)
				w.start(t, asg.DefaultLostAfter, state)
				time.Sleep(time.Minute)
				if err := w.end(); err != nil {
					t.Fatal(err)
				}
				if c.kept != "" {
					if err := os.WriteFile(file, []byte(c.kept), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				began, lostAfter := time.Now(), time.Duration(0)
				for n := range 400 { // ten minutes; each life is shorter than the time between two questions
					w.set(0)
					if n%80 == 79 {
						w.set(c.once)
					}
					w.start(t, asg.DefaultLostAfter, state)
					time.Sleep(50 * time.Millisecond)
					if c.late != 0 {
						w.set(c.late)
					}
					time.Sleep(300 * time.Millisecond)
					w.set(0)
					time.Sleep(1150 * time.Millisecond)
					if lost := w.member(t).Unhealthy; w.end() != nil || lost && lostAfter == 0 {
						lostAfter = time.Since(began)
					}
				}
				if c.lost != (lostAfter > 0) || c.lost && (lostAfter < asg.DefaultLostAfter || lostAfter > asg.DefaultLostAfter+time.Minute) {
					t.Errorf("lost after %s, want %t", lostAfter, c.lost)
				}
				if warned := strings.Contains(w.log.String(), "is not known"); warned != c.warn {
					t.Errorf("warned: %t, want %t", warned, c.warn)
				}
			})
		})
	}
}

// TestStartTakesTime: time in which nobody was asked, since AWS could not be called yet, is no
// silence.
func TestStartTakesTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(file, []byte("silent 0s"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://%") // so that nothing can be opened
		w := newMachine(t)
		w.start(t, asg.DefaultLostAfter, file, func(cfg *asg.Config) { cfg.AWS.Credentials = nil })
		time.Sleep(4 * time.Minute)
		t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
		time.Sleep(asg.DefaultLostAfter - 10*time.Second)
		if w.member(t).Unhealthy {
			t.Error("lost before it was asked for long enough")
		}
		time.Sleep(2 * time.Minute)
		if err := w.end(); err != nil || !w.member(t).Unhealthy {
			t.Errorf("ended with %v, and the server is not lost: %s", err, w.log)
		}
	})
}

// TestStartedAgain: a hook that is not active any more costs few calls, and is no error.
func TestStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asg.DefaultLostAfter)
		if err := w.Scaling.Join(w.id, "g", ""); err != nil {
			t.Fatal(err)
		}
		w.set(200)
		time.Sleep(16 * time.Minute)
		n := len(w.Calls("CompleteLifecycleAction"))
		time.Sleep(time.Hour)
		if later := len(w.Calls("CompleteLifecycleAction")) - n; n < 2 || n > 25 || later != 0 || w.end() != nil {
			t.Errorf("%d calls, want a few, and %d later, want none", n, later)
		}
		if strings.Contains(w.log.String(), "failed") || strings.Count(w.log.String(), "level=WARN") != 1 {
			t.Errorf("the log does not warn once: %s", w.log)
		}
	})
}

// TestTooEarly: a hook that becomes active later is completed then, and nobody is warned.
func TestTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asg.DefaultLostAfter)
		w.FailNext("CompleteLifecycleAction", 8, awsfake.Fault{
			Code: "ValidationError", Status: 400, Message: "No active Lifecycle Action found with instance ID " + w.id,
		})
		w.set(200)
		time.Sleep(6 * time.Minute)
		if m := w.member(t); m.Hook != "" || w.end() != nil || strings.Contains(w.log.String(), "level=WARN") {
			t.Errorf("%+v, and the log is %s", m, w.log)
		}
	})
}

// TestLostMeanwhile: the wait for the hook puts no loss off.
func TestLostMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10*time.Second)
		if err := w.Scaling.Join(w.id, "g", ""); err != nil {
			t.Fatal(err)
		}
		w.set(200)
		time.Sleep(10*time.Minute + 6*time.Second) // a minute until the next call
		w.set(0)
		time.Sleep(15 * time.Second)
		if m := w.member(t); !m.Unhealthy || w.end() != nil {
			t.Errorf("silent: %+v", m)
		}
	})
}

func TestValidate(t *testing.T) {
	good := asg.Config{Group: "g", HealthURL: asg.DefaultHealthURL, Every: asg.DefaultEvery, LostAfter: asg.DefaultLostAfter}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for says, change := range map[string]func(*asg.Config){
		"--asg: is empty": func(c *asg.Config) { c.Group = "" },
		`--instance-id: "x" is not valid: want the id`:      func(c *asg.Config) { c.InstanceID = "x" },
		`--health-url: "here" is not valid: want a`:         func(c *asg.Config) { c.HealthURL = "here" },
		"--every: 0s is not valid: want between":            func(c *asg.Config) { c.Every = 0 },
		"--lost-after: 1s is not valid: want":               func(c *asg.Config) { c.LostAfter = time.Second },
		"--lost-after: 1m0s is not valid":                   func(c *asg.Config) { c.Every, c.LostAfter = 30*time.Second, time.Minute },
		`--region: region "moon-base-1" is of no partition`: func(c *asg.Config) { c.AWS.Region = "moon-base-1" },
		`AWS_REGION: region "moon-base-2" is of no partition`: func(c *asg.Config) {
			c.AWS.Getenv = func(name string) string { return map[string]string{"AWS_REGION": "moon-base-2"}[name] }
		},
	} {
		bad := good
		change(&bad)
		for _, err := range []error{bad.Validate(), asg.Run(t.Context(), bad)} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		}
	}
}
