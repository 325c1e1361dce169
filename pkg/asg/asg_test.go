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
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// TestNext has one character for each minute: seen H is healthy, i unhealthy and a dot no answer,
// after three of which a server counts as lost.
func TestNext(t *testing.T) {
	for _, c := range []struct {
		name       string
		seen, acts string // C completes, R replaces; all calls succeed
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
	// A failed call is repeated.
	s := asg.State{}
	for range 3 {
		next, action := s.Next(time.Second, asg.Healthy, time.Minute)
		if action != asg.Complete {
			t.Errorf("a hook that was not completed: %v", action)
		}
		s = next
	}
}

// host is a server that answers with a status; 0 refuses connections, -1 hangs, and -2 refuses
// after ten minutes in which nstance-asg is suspended too.
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

// fixture is a machine of a group and its nstance-asg.
type fixture struct {
	*awstest.Cloud
	*host
	id   string
	log  *bytes.Buffer // only read after Run has ended
	end  func() error
	wait func() error // for an end of its own
}

func newFixture(t *testing.T, lostAfter time.Duration) *fixture {
	t.Helper()
	f := newMachine(t)
	f.start(t, lostAfter, "")
	return f
}

// newMachine returns a machine of a group without a running nstance-asg.
func newMachine(t *testing.T) *fixture {
	t.Helper()
	cfg := awstest.Config{Region: "eu-central-1", Policies: awsclienttest.Rights(t, "eu-central-1", nil, iam.SectionWatchdog)}
	f := &fixture{Cloud: awstest.New(cfg), host: &host{}, log: &bytes.Buffer{}}
	f.id = f.AddMachine("subnet-0000000a", nil, false)
	f.Scaling.Tag("g", map[string]string{"nstance:managed": "true", "nstance:cluster-id": awsclienttest.Cluster})
	if err := f.Scaling.Join(f.id, "g", "launch"); err != nil {
		t.Fatal(err)
	}
	return f
}

// start starts nstance-asg.
func (f *fixture) start(t *testing.T, lostAfter time.Duration, state string, change ...func(*asg.Config)) {
	t.Helper()
	cfg := asg.Config{
		Group: "g", Hook: "launch", InstanceID: f.id, HealthURL: asg.DefaultHealthURL, Every: asg.DefaultEvery, LostAfter: lostAfter,
		StateFile: state, AWS: awsclienttest.Serve(t, f.Cloud, "eu-central-1"), HTTP: f.host, Logger: slog.New(slog.NewTextHandler(f.log, nil)),
	}
	for _, apply := range change {
		apply(&cfg)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- asg.Run(ctx, cfg) }()
	f.wait = func() error { defer cancel(); return <-ended }
	f.end = func() error { cancel(); return <-ended }
}

func (f *fixture) member(t *testing.T) awstest.Member {
	t.Helper()
	m, err := f.Scaling.Member(f.id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestLife: a machine enters service when its server is healthy, and is replaced when the server
// stops answering.
func TestLife(t *testing.T) {
	for name, silence := range map[string]int{"refuses": 0, "hangs": -1} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, asg.DefaultLostAfter)
			pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
			pass(10 * time.Minute)
			f.set(503)
			pass(10 * time.Minute)
			if m := f.member(t); m.Hook != "launch" || m.Unhealthy {
				t.Errorf("%s, before it is healthy: %+v", name, m)
			}
			f.set(200)
			pass(10 * time.Second)
			if m := f.member(t); m.Hook != "" || m.Abandoned || m.Unhealthy {
				t.Errorf("%s, healthy: %+v", name, m)
			}
			f.set(503)
			pass(time.Hour)
			f.set(silence)
			pass(asg.DefaultLostAfter - 10*time.Second)
			if m := f.member(t); m.Unhealthy {
				t.Errorf("%s, silent for less than is allowed: %+v", name, m)
			}
			pass(20 * time.Second)
			if m := f.member(t); !m.Unhealthy || m.RespectsGrace {
				t.Errorf("%s, silent: %+v", name, m)
			}
			pass(time.Hour)
			if a, b := len(f.Calls("CompleteLifecycleAction")), len(f.Calls("SetInstanceHealth")); a != 1 || b != 1 {
				t.Errorf("%s: %d and %d calls, want one each", name, a, b)
			}
			if err := f.end(); err != nil {
				t.Errorf("%s: ended with %v", name, err)
			}
		})
	}
}

// TestAWSFails: failed calls are repeated with a growing back-off.
func TestAWSFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, asg.DefaultLostAfter)
		f.FailNext("CompleteLifecycleAction", 3, awstest.Fault{Code: "AccessDenied", Status: 403, Message: "no"})
		f.FailNext("CompleteLifecycleAction", 1, awstest.Fault{Lost: true})
		f.FailNext("SetInstanceHealth", 2, awstest.Fault{Code: "Throttling", Status: 400})
		f.set(200)
		time.Sleep(2 * time.Minute)
		if m := f.member(t); m.Hook != "" || len(f.Calls("CompleteLifecycleAction")) < 5 { // the fifth call succeeds
			t.Errorf("%+v after %d calls", m, len(f.Calls("CompleteLifecycleAction")))
		}
		f.set(0)
		time.Sleep(asg.DefaultLostAfter + time.Minute)
		if m := f.member(t); !m.Unhealthy || len(f.Calls("SetInstanceHealth")) != 3 {
			t.Errorf("%+v after %d calls", m, len(f.Calls("SetInstanceHealth")))
		}
		err := f.end()
		for _, says := range []string{"AccessDenied", "hook is not active"} {
			if err != nil || !strings.Contains(f.log.String(), says) {
				t.Errorf("ended with %v; the log does not say %s: %s", err, says, f.log)
			}
		}
	})
}

// TestCrashLoop: systemd restarts nstance-asg with the server. With a state file, a server that was
// healthy still counts as lost; one that never was, or that answers once in a while, does not.
func TestCrashLoop(t *testing.T) {
	for _, c := range []struct {
		name       string
		first      int // the server's answer before it crashes
		once       int // its answer once in two minutes
		late       int // its answer for a moment after each start
		state      bool
		kept       string // replaces the file's content; empty: it is kept
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
				f, state := newMachine(t), ""
				if c.state {
					state = file
				}
				f.set(c.first)
				f.start(t, asg.DefaultLostAfter, state)
				time.Sleep(time.Minute)
				if err := f.end(); err != nil {
					t.Fatal(err)
				}
				if c.kept != "" {
					if err := os.WriteFile(file, []byte(c.kept), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				began, lostAfter := time.Now(), time.Duration(0)
				for n := range 400 { // ten minutes; each run is shorter than the polling interval
					f.set(0)
					if n%80 == 79 {
						f.set(c.once)
					}
					f.start(t, asg.DefaultLostAfter, state)
					time.Sleep(50 * time.Millisecond)
					if c.late != 0 {
						f.set(c.late)
					}
					time.Sleep(300 * time.Millisecond)
					f.set(0)
					time.Sleep(1150 * time.Millisecond)
					if lost := f.member(t).Unhealthy; f.end() != nil || lost && lostAfter == 0 {
						lostAfter = time.Since(began)
					}
				}
				if c.lost != (lostAfter > 0) || c.lost && (lostAfter < asg.DefaultLostAfter || lostAfter > asg.DefaultLostAfter+time.Minute) {
					t.Errorf("lost after %s, want %t", lostAfter, c.lost)
				}
				if warned := strings.Contains(f.log.String(), "reading the state file failed"); warned != c.warn {
					t.Errorf("warned: %t, want %t", warned, c.warn)
				}
			})
		})
	}
}

// TestStartTakesTime: time before the first poll, while AWS can't be called yet, does not count as
// silence.
func TestStartTakesTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(file, []byte("silent 0s"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://%") // no connection can be opened
		f := newMachine(t)
		f.start(t, asg.DefaultLostAfter, file, func(cfg *asg.Config) { cfg.AWS.Credentials = nil })
		time.Sleep(4 * time.Minute)
		t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
		time.Sleep(asg.DefaultLostAfter - 10*time.Second)
		if f.member(t).Unhealthy {
			t.Error("lost before it was asked for long enough")
		}
		time.Sleep(2 * time.Minute)
		if err := f.end(); err != nil || !f.member(t).Unhealthy {
			t.Errorf("ended with %v, and the server is not lost: %s", err, f.log)
		}
	})
}

// TestStartedAgain: a hook that is no longer active costs few calls, and is no error.
func TestStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, asg.DefaultLostAfter)
		if err := f.Scaling.Join(f.id, "g", ""); err != nil {
			t.Fatal(err)
		}
		f.set(200)
		time.Sleep(16 * time.Minute)
		n := len(f.Calls("CompleteLifecycleAction"))
		time.Sleep(time.Hour)
		if later := len(f.Calls("CompleteLifecycleAction")) - n; n < 2 || n > 25 || later != 0 || f.end() != nil {
			t.Errorf("%d calls, want a few, and %d later, want none", n, later)
		}
		if strings.Contains(f.log.String(), "failed") || strings.Count(f.log.String(), "level=WARN") != 1 {
			t.Errorf("the log does not warn once: %s", f.log)
		}
	})
}

// TestTooEarly: a hook that becomes active later is completed then, without a warning.
func TestTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, asg.DefaultLostAfter)
		f.FailNext("CompleteLifecycleAction", 8, awstest.Fault{
			Code: "ValidationError", Status: 400, Message: "No active Lifecycle Action found with instance ID " + f.id,
		})
		f.set(200)
		time.Sleep(6 * time.Minute)
		if m := f.member(t); m.Hook != "" || f.end() != nil || strings.Contains(f.log.String(), "level=WARN") {
			t.Errorf("%+v, and the log is %s", m, f.log)
		}
	})
}

// TestLostMeanwhile: a loss is reported even while the hook is retried.
func TestLostMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 10*time.Second)
		if err := f.Scaling.Join(f.id, "g", ""); err != nil {
			t.Fatal(err)
		}
		f.set(200)
		time.Sleep(10*time.Minute + 6*time.Second) // the next call is a minute away
		f.set(0)
		time.Sleep(15 * time.Second)
		if m := f.member(t); !m.Unhealthy || f.end() != nil {
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
		"--asg is required": func(c *asg.Config) { c.Group = "" },
		`--instance-id: "x" is not valid: want an EC2 instance ID`: func(c *asg.Config) { c.InstanceID = "x" },
		`--health-url: "here" is not valid: want a`:                func(c *asg.Config) { c.HealthURL = "here" },
		"--every: 0s is not valid: want between":                   func(c *asg.Config) { c.Every = 0 },
		"--lost-after: 1s is not valid: want":                      func(c *asg.Config) { c.LostAfter = time.Second },
		"--lost-after: 1m0s is not valid":                          func(c *asg.Config) { c.Every, c.LostAfter = 30*time.Second, time.Minute },
		`--region: region "moon-base-1" is not in a known`:         func(c *asg.Config) { c.AWS.Region = "moon-base-1" },
		`AWS_REGION: region "moon-base-2" is not in a known AWS partition`: func(c *asg.Config) {
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
