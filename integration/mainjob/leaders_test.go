//go:build integration

package mainjob

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/integration/waits"
)

// TestLeaders is stories 7 and 8: leader election, and an unavailable store. The servers are the
// same for all kinds of agents, so one provider is enough. Durations are logged, and asserted
// elsewhere: the benchmark's rows failover, frozen and coldstart have the targets of real
// processes, and the tests of pkg/server/election those of simulated servers.
func TestLeaders(t *testing.T) {
	tell(t, "process", true,
		story{"07 SIGTERM hands over", func(s *stack) { failsOver(s, syscall.SIGTERM) }},
		story{"07 SIGKILL fails over", func(s *stack) { failsOver(s, syscall.SIGKILL) }},
		story{"07 SIGSTOP fails over after the lease, SIGCONT does nothing", stops},
		story{"07 a lone server killed and started again acts", restartsAlone},
		story{"08 object storage away for half a lease while scaling", storeAway},
		story{"08 object storage away for longer than the lease", storeLong},
	)
}

// leader returns the server of dev-1 that leads, and the other one.
func (s *stack) leader() (leads, other string) {
	s.t.Helper()
	s.eventually("one of dev-1 and standby leads", func() (bool, string) {
		one, two := s.component("dev-1"), s.component("standby")
		switch {
		case one.Detail == "leading" && two.Detail == "standing by":
			leads, other = "dev-1", "standby"
		case two.Detail == "leading" && one.Detail == "standing by":
			leads, other = "standby", "dev-1"
		}
		return leads != "", fmt.Sprintf("%+v %+v", one, two)
	})
	return leads, other
}

// readyAfter waits for a server's next "ready to act" after a time, and returns how long it took.
func (s *stack) readyAfter(name string, from time.Time) time.Duration {
	s.t.Helper()
	_, took := s.successor(from, name)
	return took
}

// successor is readyAfter for the first of several servers that acts.
func (s *stack) successor(from time.Time, names ...string) (name string, took time.Duration) {
	s.t.Helper()
	s.eventually(strings.Join(names, " or ")+" acts", func() (bool, string) {
		for _, name = range names {
			for _, line := range s.logs(name, `msg="ready to act"`) {
				if at := s.timeAttr(line, "time"); at.After(from) {
					took = at.Sub(from)
					return true, ""
				}
			}
		}
		return false, ""
	})
	return name, took
}

// noWait fails if a server waited, after a time, for a predecessor's fence window: a leader that
// steps down announces it, so that there is no wait.
func (s *stack) noWait(name string, from time.Time) {
	s.t.Helper()
	for _, line := range s.logs(name, `msg="election phase changed"`, "to=waiting") {
		if s.timeAttr(line, "time").After(from) {
			s.t.Errorf("%s waited, although the lead was given up: %s", name, line)
		}
	}
}

func failsOver(s *stack, sig syscall.Signal) {
	leads, other := s.leader()
	before := s.running("dev-1")
	from := time.Now()
	if err := syscall.Kill(s.component(leads).PID, sig); err != nil {
		s.t.Fatal(err)
	}
	next, took := s.successor(from, other, leads) // the stack restarts the old leader at once
	s.t.Logf("%s acted %s after %s to %s", next, took, sig, leads)
	if sig == syscall.SIGTERM {
		s.noWait(next, from)
	}
	s.settle("dev-1", 2)
	if after := s.running("dev-1"); !slices.Equal(before, after) {
		s.t.Errorf("want the same instances %v, have %v", before, after)
	}
}

func stops(s *stack) {
	leads, other := s.leader()
	pid := s.component(leads).PID
	from := time.Now()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	took := s.readyAfter(other, from)
	s.t.Logf("%s acted %s after SIGSTOP to %s", other, took, leads)
	s.scale("dev-1", 3)
	mine := s.running("dev-1")
	resumed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the old leader stepped down", func() (bool, string) {
		c := s.component(leads)
		return c.Detail == "standing by", c.Detail
	})
	for _, line := range s.logs(leads, "replacement started") {
		if s.timeAttr(line, "time").After(resumed) {
			s.t.Errorf("the old leader acted: %s", line)
		}
	}
	s.settle("dev-1", 3)
	if after := s.running("dev-1"); !slices.Equal(mine, after) {
		s.t.Errorf("want the new leader's instances %v, have %v", mine, after)
	}
	s.scale("dev-1", 2)
}

func restartsAlone(s *stack) {
	// dev-2 has no standby; the supervisor restarts it half a second after its death, which does
	// not count as the server's time.
	pid := s.component("dev-2").PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	var started time.Time
	s.eventually("dev-2 is started again", func() (bool, string) {
		lines := s.logs("dev-2", "msg=starting")
		started = s.timeAttr(lines[len(lines)-1], "time")
		return len(lines) >= 2, ""
	})
	took := s.readyAfter("dev-2", started)
	s.t.Logf("dev-2 acted %s after its start", took)
}

func storeAway(s *stack) {
	s.leader()
	s.eventually("what the story before left has drained", func() (bool, string) {
		n := s.machines("dev-1")
		return n == 2, fmt.Sprint(n)
	})
	before := s.running("dev-1")
	s.dev("stop", "s3")
	done := make(chan struct {
		out  string
		code int
	}, 1)
	go func() {
		out, errOut, code := s.try("group", "scale", "web", "4", "--shard", "dev-1", "--wait", "--timeout", "2m")
		done <- struct {
			out  string
			code int
		}{out + errOut, code}
	}()
	s.sleep("the time for which the store is away", waits.Lease/2)
	if n := s.machines("dev-1"); n != 2 {
		s.t.Errorf("want 2 machines while nothing can be recorded, have %d", n)
	}
	s.dev("start", "s3")
	if r := <-done; r.code != 0 {
		s.t.Errorf("scaling did not finish when the store came back: exit %d\n%s", r.code, r.out)
		s.scale("dev-1", 4)
	}
	s.settle("dev-1", 4)
	after := s.running("dev-1")
	for _, id := range before {
		if !slices.Contains(after, id) {
			s.t.Errorf("%s was lost: have %v", id, after)
		}
	}
	if n := s.machines("dev-1"); n != 4 {
		s.t.Errorf("want exactly 4 machines, have %d", n)
	}
	s.scale("dev-1", 2)
}

func storeLong(s *stack) {
	leads, _ := s.leader()
	before := s.running("dev-1")
	from := time.Now()
	s.dev("stop", "s3")
	s.eventually("the leader stepped down", func() (bool, string) {
		for _, line := range s.logs(leads, `msg="term is over"`) {
			if s.timeAttr(line, "time").After(from) {
				return true, ""
			}
		}
		return false, ""
	})
	s.dev("start", "s3")
	s.leader()
	s.settle("dev-1", 2)
	if after := s.running("dev-1"); !slices.Equal(before, after) {
		s.t.Errorf("want the same instances %v, have %v", before, after)
	}
}
