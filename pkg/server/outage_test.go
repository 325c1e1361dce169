package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/leader"
	"github.com/nstance/nstance/pkg/server/operators"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// loses has object storage fail every request from now on, and returns what is said of that.
func (s *site) loses(fault objecttest.Fault) (said string) {
	s.store.Set(objecttest.Always(objecttest.Outcome{Fault: fault}))
	return "no write to object storage has succeeded since " + time.Now().UTC().Format("2006-01-02T15:04:")
}

// TestOutageIsTold: while object storage takes no writes, groups, the health endpoint and refusals
// say so, also when no server leads any more, and machines that died meanwhile don't count.
func TestOutageIsTold(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{"it can't be reached": objecttest.Dropped, "it does not answer": objecttest.Hung} {
		t.Run(name, simulation(func(t *testing.T) { testOutageIsTold(t, fault) }))
	}
}

func testOutageIsTold(t *testing.T, fault objecttest.Fault) {
	s, p := running(t)
	errs := p.watchErrors("default")
	groups := s.keys("groups/")
	said := s.loses(fault)
	s.world.Kill(s.living()[0])
	eventually(t, "the group says so", func() error {
		g, err := p.group("web")
		if c := condition(g, operators.ConditionStorageUnreachable); err != nil || !strings.Contains(c.GetMessage(), said) {
			return fmt.Errorf("web is %v: %w", g, err)
		}
		if c := condition(g, "Degraded"); c != nil {
			return fmt.Errorf("it is told twice: %v", c)
		}
		if g.GetActualSize() != 1 || g.GetPendingSize() != 1 {
			return fmt.Errorf("%d run, %d are pending", g.GetActualSize(), g.GetPendingSize())
		}
		return nil
	})
	errs.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
		return e.GetReason() == leader.ReasonStorageUnreachable && !e.GetOver()
	})
	p.says("leading; " + said)
	_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))})
	p.refuses(err, said)
	p.says("standing by; " + said)
	_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))})
	p.refuses(err, said)
	_, err = p.group("web")
	p.refuses(err, said)

	s.store.Set(nil)
	p.await("object storage takes writes again")
	p.says("leading")
	p.takesAgents()
	p.awaitSize("web", 2)
	if g := s.mustGroup(p, "web"); condition(g, operators.ConditionStorageUnreachable) != nil || g.GetSize() != 2 {
		t.Errorf("web is %v", g)
	}
	if now := s.keys("groups/"); len(now) != len(groups) {
		t.Errorf("records of groups: %v, before %v", now, groups)
	}
	if _, body := p.health(); body != "leading\n" {
		t.Errorf("the health endpoint says %q", body)
	}
}

// refuses checks that a call was refused because of what is said, and changed nothing.
func (p *process) refuses(err error, said string) {
	p.t.Helper()
	text := status.Convert(err).Message()
	if status.Code(err) != codes.Unavailable || !strings.Contains(text, said) || !strings.Contains(text, "nothing was changed") {
		p.t.Errorf("got %v, want a refusal that says %q", err, said)
	}
}

// TestOutageIsOver: an outage that ends within the term is over for who watches.
func TestOutageIsOver(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		errs := p.watchErrors("default")
		s.loses(objecttest.Refused)
		errs.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonStorageUnreachable && !e.GetOver()
		})
		s.store.Set(nil)
		errs.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonStorageUnreachable && e.GetOver()
		})
		p.awaitSize("web", 2)
	})
}

// TestBlipIsNoOutage: requests that fail for less than five seconds are not told.
func TestBlipIsNoOutage(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.loses(objecttest.Dropped)
		time.Sleep(4 * time.Second)
		s.store.Set(nil)
		time.Sleep(time.Minute)
		if n := p.log.counting("problem", "reason", leader.ReasonStorageUnreachable); n != 0 {
			t.Errorf("it was told %d times", n)
		}
	})
}

// TestOneRefusedObjectIsNoOutage: that one object is refused, again and again, is no outage, though an
// idle leader sends few other requests.
func TestOneRefusedObjectIsNoOutage(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, quiet())
		s.config[`"renew_interval": "1s", "lease_duration": "10s"`] = `"renew_interval": "10s", "lease_duration": "30s"`
		s.putConfig(shardID)
		refused := 0
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if strings.HasPrefix(r.Key, "events/") {
				refused++
				return objecttest.Outcome{Fault: objecttest.Refused}
			}
			return objecttest.Outcome{}
		})
		p := s.start().awaitLeading()
		time.Sleep(10 * time.Minute)
		if n := p.log.counting("problem", "reason", leader.ReasonStorageUnreachable); n != 0 || refused < 5 {
			t.Errorf("%d refusals, and an outage was told %d times", refused, n)
		}
	})
}

// TestOutageOfAStandbyEnds: a standby says no more of an outage soon after it.
func TestOutageOfAStandbyEnds(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, quiet())
		q := s.start(named("b"))
		q.await("serving")
		time.Sleep(10 * time.Minute) // it follows the leader's stream
		said := s.loses(objecttest.Dropped)
		time.Sleep(25 * time.Second)
		q.says(said)
		s.store.Set(nil)
		time.Sleep(10 * time.Second)
		for _, server := range []*process{p, q} {
			if _, body := server.health(); strings.Contains(body, "object storage") {
				t.Errorf("the health endpoint says %q", body)
			}
		}
	})
}
