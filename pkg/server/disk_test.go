package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server/leader"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestDiskOfAnInstance: an instance that can't write to its disk is told of and named, also by a group
// that is complete, and goes on; what its agent says reaches no log as more than one line.
func TestDiskOfAnInstance(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, quiet())
		id := s.living()[0]
		errs := p.watchErrors("default")
		says := func(text string) {
			r := &nstancev1.ReportHealthRequest{Sequence: 2, WriteError: text}
			if err := s.agents.of(id).stream.Send(r); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		for range 3 {
			says("read-only\nfile system" + strings.Repeat("!", 1000))
		}
		errs.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonDisk && e.GetInstanceId() == string(id) &&
				strings.Contains(e.GetMessage(), "read-only file system!")
		})
		if i, err := p.instance(id); err != nil || !strings.Contains(i.GetLastError(), "can't write to its disk: read-only") ||
			len(i.GetLastError()) > 400 || i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING {
			t.Errorf("the instance is %v, %v", i, err)
		}
		g, err := p.group("web")
		if err != nil {
			t.Fatal(err)
		}
		if c := condition(g, "Degraded"); c.GetReason() != leader.ReasonDisk || !strings.Contains(c.GetMessage(), string(id)) {
			t.Errorf("the group says %v", c)
		}
		for range 5 { // it flaps
			says("")
			says("full")
		}
		if n := p.log.counting("problem", "reason", leader.ReasonDisk); n != 1 {
			t.Errorf("told %d times", n)
		}
		time.Sleep(time.Minute)
		says("")
		errs.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonDisk && e.GetInstanceId() == string(id) && e.GetOver()
		})
		if i, err := p.instance(id); err != nil || i.GetLastError() != "" {
			t.Errorf("the instance is %v, %v", i, err)
		}
	})
}
