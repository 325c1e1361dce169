package server_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server"
)

// TestIdleRequests: an idle leader at the default intervals sends at most 400 requests an hour to
// object storage, and its standby 20. The benchmark's row idle reads the log.
func TestIdleRequests(t *testing.T) {
	simulated(t, func(t *testing.T) {
		const timing = `"renew_interval": "1s", "lease_duration": "10s", "fence_window": "100ms"`
		s := newSite(t, calm, replaced(timing, ""))
		leader, standby := objecttest.NewCounting(s.store), objecttest.NewCounting(s.store)
		p := s.start(func(c *server.Config) { c.Store = leader })
		s.populate(p)
		p.awaitSize("web", 2)
		q := s.start(named("b"), func(c *server.Config) { c.Store = standby })
		time.Sleep(55 * time.Minute) // the intervals that grow after a takeover are the longest by now
		led, followed := leader.Counts(), standby.Counts()
		const hours = 2 // shorter than three reports of an agent, of which none sends any here
		time.Sleep(hours * time.Hour)
		led, followed = leader.Counts().Sub(led), standby.Counts().Sub(followed)
		t.Logf("%.1f requests of a leader, %.1f of a standby an hour", float64(led.Total())/hours, float64(followed.Total())/hours)
		if led.Total() > 400*hours {
			t.Errorf("the leader sent %+v in %d hours", led, hours)
		}
		if followed.Total() > 20*hours {
			t.Errorf("the standby sent %+v in %d hours", followed, hours)
		}
		if p.log.count("leading") != 1 || q.log.count("leading") != 0 {
			t.Error("the leader changed")
		}
	})
}
