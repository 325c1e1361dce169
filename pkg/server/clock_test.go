package server_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server"
	"github.com/nstance/nstance/pkg/server/leader"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// hostClock is a host's clock that can be set. Its readings have no monotonic clock's.
type hostClock struct{ step atomic.Int64 }

func (c *hostClock) set(by time.Duration)  { c.step.Store(int64(by)) }
func (c *hostClock) Now() time.Time        { return time.Now().Round(0).Add(time.Duration(c.step.Load())) }
func (c *hostClock) on(cfg *server.Config) { cfg.Now = c.Now }

// TestClockWasAhead: machines that registered while the host's clock was ahead go on when it is right
// again, under the same server and the next one, and are replaced in time if they fall silent.
func TestClockWasAhead(t *testing.T) {
	simulated(t, func(t *testing.T) {
		clock := &hostClock{}
		s := newSite(t)
		p := s.start(clock.on)
		s.populate(p)
		p.awaitSize("web", 2)
		clock.set(14 * time.Minute)
		p.ends()
		p = s.start(clock.on, named("b")).awaitLeading()
		p.takesAgents()
		p.scale(4)
		p.awaitSize("web", 4)
		machines := s.living()
		clock.set(0)
		s.keptAll("after the clock was set", machines)
		p.ends()
		p = s.start(clock.on, named("c")).awaitLeading()
		p.takesAgents() // with certificates of the time ahead
		s.keptAll("after the takeover", machines)
		time.Sleep(5 * time.Minute)
		for _, id := range machines {
			if slices.Contains(s.living(), id) {
				t.Errorf("%s is silent, and was not replaced", id)
			}
		}
	})
}

// reports sends a report of every agent, with the true time, and waits until it has arrived.
func (s *site) reports(ids []fleet.InstanceID) {
	s.t.Helper()
	for _, id := range ids {
		sent := timestamppb.New(time.Now())
		if err := s.agents.of(id).stream.Send(&nstancev1.ReportHealthRequest{Sequence: 2, SentAt: sent}); err != nil {
			s.t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
}

// TestClockOfAServer: a server whose clock differs from object storage says so, once, until it is right,
// and blames none of its instances.
func TestClockOfAServer(t *testing.T) {
	for _, by := range []time.Duration{14 * time.Minute, -14 * time.Minute} {
		t.Run(by.String(), simulation(func(t *testing.T) {
			clock := &hostClock{}
			s := newSite(t, quiet())
			p := s.start(clock.on)
			s.populate(p)
			p.awaitSize("web", 2)
			errs, machines := p.watchErrors("default"), s.living()
			s.reports(machines)
			time.Sleep(2 * time.Minute) // the clocks have been compared by then
			clock.set(by)
			for range 40 { // half an hour
				s.reports(machines)
				time.Sleep(44 * time.Second)
			}
			errs.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
				return e.GetReason() == leader.ReasonClock && strings.Contains(e.GetMessage(), by.Abs().String()) && e.GetInstanceId() == ""
			})
			if n := p.log.counting("problem", "reason", leader.ReasonClock); n != 1 {
				t.Errorf("told %d times", n)
			}
			clock.set(0)
			time.Sleep(time.Hour)
			errs.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool { return e.GetReason() == leader.ReasonClock && e.GetOver() })
			s.keptAll("after the clock was set", machines)
		}))
	}
}

// TestClockIsNotCompared: while object storage does not answer, what was found of the clocks stays, and
// is tried again.
func TestClockIsNotCompared(t *testing.T) {
	simulated(t, func(t *testing.T) {
		clock := &hostClock{}
		s := newSite(t, quiet())
		p := s.start(clock.on)
		s.populate(p)
		p.awaitSize("web", 2)
		clock.set(5 * time.Minute)
		time.Sleep(20 * time.Minute)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbGet && strings.HasPrefix(r.Key, "probe/") {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		time.Sleep(35 * time.Minute)
		s.store.Set(nil)
		time.Sleep(15 * time.Minute)
		if n := p.log.counting("problem", "reason", leader.ReasonClock); n != 1 { // otherwise it was over in between
			t.Errorf("told %d times", n)
		}
		if n := p.log.count("can't compare this server's clock to that of object storage"); n < 2 {
			t.Errorf("tried %d times", n)
		}
	})
}

// TestClockOfAnInstance: an instance whose clock differs is told, once, until it is right.
func TestClockOfAnInstance(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, quiet())
		id := s.living()[0]
		errs := p.watchErrors("default")
		send := func(ahead time.Duration) {
			sent := timestamppb.New(time.Now().Add(ahead))
			if err := s.agents.of(id).stream.Send(&nstancev1.ReportHealthRequest{Sequence: 2, SentAt: sent}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		send(59 * time.Second)
		send(-2 * time.Minute)
		time.Sleep(2 * time.Minute) // the server compares its own clock first
		send(-2 * time.Minute)
		errs.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonClock && e.GetInstanceId() == string(id) && strings.Contains(e.GetMessage(), "2m0s behind")
		})
		if i, err := p.instance(id); err != nil || !strings.Contains(i.GetLastError(), "2m0s behind") {
			t.Errorf("its status says %v, %v", i, err)
		}
		send(-2 * time.Minute)
		if n := p.log.counting("problem", "reason", leader.ReasonClock); n != 1 {
			t.Errorf("told %d times", n)
		}
		time.Sleep(time.Minute)
		send(-50 * time.Second) // near, and not yet right
		send(0)
		errs.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonClock && e.GetInstanceId() == string(id) && e.GetOver()
		})
	})
}
