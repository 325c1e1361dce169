//go:build integration

package mainjob

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestDaily is stories 1 to 5 on one stack per provider: coming up, scaling, losing one agent,
// losing the server, losing every agent.
func TestDaily(t *testing.T) {
	tellEverywhere(t,
		story{"01 two shards come up, two agents each", comesUp},
		story{"02 scale to five and back to one, the oldest leave first", scales},
		story{"03 a killed agent is replaced", replacesOne},
		story{"04 a killed server adopts the same agents", survivesServer},
		story{"04 a killed server without its cache adopts them too", survivesCache},
		story{"05 all agents killed at once are all replaced", replacesAll},
	)
}

func comesUp(s *stack) {
	groups := s.groups()
	if len(groups) != 2 {
		s.t.Fatalf("want group web in two shards, have %+v", groups)
	}
	for _, g := range groups {
		if g.Key != "web" || g.Size != 2 || g.ActualSize != 2 {
			s.t.Errorf("want web of 2, 2 of them running, have %+v", g)
		}
		if n := s.machines(g.Shard); n != 2 {
			s.t.Errorf("want 2 machines in %s, have %d", g.Shard, n)
		}
	}
}

func scales(s *stack) {
	s.scale("dev-1", 5)
	five := s.running("dev-1")
	if len(five) != 5 {
		s.t.Fatalf("want 5 running, have %v", five)
	}
	s.scale("dev-1", 1)
	s.settle("dev-1", 1)
	if left := s.running("dev-1"); len(left) != 1 || left[0] != slices.Max(five) {
		s.t.Errorf("want the youngest of %v to stay, have %v", five, left)
	}
	s.eventually("one machine is left", func() (bool, string) {
		n := s.machines("dev-1")
		return n == 1, fmt.Sprint(n)
	})
	s.scale("dev-1", 2)
}

// replacesOne logs how soon the create is called; the benchmark's row replacement has the target
// for it, and tests of pkg/server/reconcile check it in simulated time.
func replacesOne(s *stack) { replacesOneBy(s, "dev-1") }

// replacesOneBy is replacesOne where another server may lead dev-1.
func replacesOneBy(s *stack, leader string) {
	victim := s.running("dev-1")[0]
	s.kill("dev-1", victim)
	s.eventually("the replacement is logged", func() (bool, string) {
		return len(s.logs(leader, "replacement started", "replaces="+victim)) == 1, ""
	})
	line := s.logs(leader, "replacement started", "replaces="+victim)[0]
	took := s.timeAttr(line, "create_called_at").Sub(s.timeAttr(line, "disconnected_at"))
	s.t.Logf("create called %s after the connection broke: %s", took, line)
	s.settle("dev-1", 2)
	s.eventually("the dead one is a tombstone", func() (bool, string) {
		for _, i := range s.instances("dev-1", "--deleted") {
			if i.ID == victim {
				return i.Phase == "deleted", string(i.Phase)
			}
		}
		return false, "no record"
	})
}

func survivesServer(s *stack) {
	adopts(s, func() { s.dev("kill", "dev-1") })
}

func survivesCache(s *stack) {
	adopts(s, func() {
		s.dev("kill", "dev-1")
		if err := os.RemoveAll(filepath.Join(s.temp, "cache", "dev-1")); err != nil {
			s.t.Fatal(err)
		}
	})
}

// adopts kills the server and restarts it: the same agents must continue, without any creates and
// deletes.
func adopts(s *stack, kill func()) {
	s.settle("dev-1", 2)
	before := s.running("dev-1")
	records := len(s.instances("dev-1", "--deleted"))
	kill()
	if n := s.machines("dev-1"); n != 2 {
		s.t.Errorf("want 2 machines while the server is down, have %d", n)
	}
	s.dev("start", "dev-1")
	s.settle("dev-1", 2)
	if after := s.running("dev-1"); !slices.Equal(before, after) {
		s.t.Errorf("want the same instances %v, have %v", before, after)
	}
	if n := len(s.instances("dev-1", "--deleted")); n != records {
		s.t.Errorf("want %d records as before, have %d", records, n)
	}
}

func replacesAll(s *stack) {
	s.scale("dev-1", 4)
	before := s.running("dev-1")

	// Real machines are counted throughout.
	stop, most := make(chan struct{}), atomic.Int64{}
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		for {
			select {
			case <-stop:
				return
			default:
				most.Store(max(most.Load(), int64(s.machines("dev-1"))))
				time.Sleep(5 * time.Millisecond) // sampling
			}
		}
	}()
	for _, id := range before {
		s.kill("dev-1", id)
	}
	s.eventually("four new ones run", func() (bool, string) {
		now := s.running("dev-1")
		fresh := !slices.ContainsFunc(now, func(id string) bool { return slices.Contains(before, id) })
		return len(now) == 4 && fresh, strings.Join(now, " ")
	})
	s.settle("dev-1", 4)
	close(stop)
	<-counted
	if n := most.Load(); n > 5 {
		s.t.Errorf("%d machines ran at one time: want at most size + 1 = 5", n)
	}
	s.scale("dev-1", 2)
}
