package server_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server"
)

// trip is what each request to the store takes in this file.
const trip = 30 * time.Millisecond

// lossAtTakeover is a shard whose machine is lost when a standby begins its term, with a slow store
// from then on.
type lossAtTakeover struct {
	site     *site
	began    time.Time
	mu       sync.Mutex
	requests strings.Builder
}

// strike has the standby take over, after prepare, and returns how long after the start of its term
// it calls the first create.
func (l *lossAtTakeover) strike(t *testing.T, prepare func()) time.Duration {
	t.Helper()
	s, p := running(t)
	l.site = s
	q := s.start(named("b"), func(c *server.Config) {
		c.Logger = slog.New(onLine{Handler: c.Logger.Handler(), message: "leading", do: l.lose})
	})
	q.awaitHealth(http.StatusOK, "standing by")
	q.awaitPeer()
	s.world.ForgetCalls()
	prepare()
	p.ends()
	eventually(t, "the lost machine is replaced", func() error {
		if len(s.world.Calls(fake.OpCreate)) == 0 {
			return errors.New("no create yet")
		}
		return nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.world.Calls(fake.OpCreate)[0].Start.Sub(l.began)
}

func (l *lossAtTakeover) lose() {
	l.mu.Lock()
	l.began = time.Now()
	l.mu.Unlock()
	l.site.world.Kill(l.site.living()[0])
	l.slow()
}

// slow makes each request to the store take a trip.
func (l *lossAtTakeover) slow() {
	l.site.store.Set(func(r objecttest.Request) objecttest.Outcome {
		l.mu.Lock()
		defer l.mu.Unlock()
		fmt.Fprintf(&l.requests, "%s after the start of the term: %s %s\n", time.Since(l.began), r.Verb, r.Key)
		return objecttest.Outcome{Latency: trip}
	})
}

// TestTakeoverTrips: between the start of its term and its first create, a new leader waits for the
// store twice: for the listings of the records, and for the record of the new instance. What changed
// since the standby looked is read while it takes the lead.
func TestTakeoverTrips(t *testing.T) {
	for name, changed := range map[string]bool{"nothing changed": false, "all records changed": true} {
		t.Run(name, simulation(func(t *testing.T) {
			var l lossAtTakeover
			took := l.strike(t, func() {
				l.slow()
				for _, key := range l.site.keys("instance/") {
					if changed {
						l.site.put(key, l.site.get(key)+"\n")
					}
				}
			})
			if took > 2*trip+trip/2 {
				l.mu.Lock()
				defer l.mu.Unlock()
				t.Errorf("the first create was called %s after the start of the term, want two requests of %s:\n%s", took, trip, l.requests.String())
			}
		}))
	}
}

// TestTakeoverRecordsItsConfig: the config of a term is written in that term, though it is unchanged
// and nothing waits for it.
func TestTakeoverRecordsItsConfig(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		p.ends()
		s.start(named("b")).awaitLeading()
		eventually(t, "the config is recorded in the second term", func() error {
			if header, _, _ := strings.Cut(s.get(appliedAt), "\n"); !strings.Contains(header, `"epoch":2`) {
				return fmt.Errorf("its header is %s", header)
			}
			return nil
		})
	})
}
