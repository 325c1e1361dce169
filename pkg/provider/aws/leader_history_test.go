package aws_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// history is a shard whose servers take over from each other at random.
type history struct {
	*shard
	random  *rand.Rand
	hosts   []host
	leading atomic.Int64 // indexes of the hosts
	running sync.WaitGroup
}

// lead makes a host the leader, which assigns the address until it has it or another host leads.
func (h *history) lead(t *testing.T, n int) {
	t.Helper()
	h.leading.Store(int64(n))
	ctx := provider.WithGuard(t.Context(), func(context.Context) error {
		if h.leading.Load() != int64(n) {
			return errNotLeader
		}
		return nil
	})
	h.running.Go(func() {
		for range 100 { // otherwise it never will
			held, err := h.hosts[n].Check(ctx)
			if err == nil && !held {
				err = h.hosts[n].Assign(ctx)
			}
			if err == nil || errors.Is(err, errNotLeader) || h.leading.Load() != int64(n) {
				return
			}
			time.Sleep(5 * time.Second) // as the server does
		}
	})
}

// mishap is a failure during the history.
func (h *history) mishap(t *testing.T) {
	t.Helper()
	actions := append(h.mode.actions(), "DescribeNetworkInterfaces")
	faults := []awstest.Fault{
		{Lost: true}, {Dropped: true}, {Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable}, {Delay: 3 * time.Second},
	}
	switch h.random.IntN(4) {
	case 0:
		if err := h.Hang(h.hosts[h.random.IntN(2)].id); err != nil { // the third never does
			t.Error(err)
		}
	case 1, 2:
		h.FailNext(actions[h.random.IntN(len(actions))], 1+h.random.IntN(3), faults[h.random.IntN(len(faults))])
	}
}

// TestLeaderHistories: after any sequence of leaders, the last one gets the address and keeps it.
func TestLeaderHistories(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		for seed := range uint64(4) {
			h := &history{random: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // histories are to repeat
			h.shard = newShard(t, m, func(cfg *awstest.Config) {
				cfg.Seed, cfg.Lag = seed, time.Duration(h.random.IntN(3000))*time.Millisecond
			})
			for range 3 {
				h.hosts = append(h.hosts, h.host(t))
			}
			time.Sleep(5 * time.Second) // until every read is current
			last := 0
			for range 12 {
				last = h.random.IntN(len(h.hosts))
				h.mishap(t)
				h.lead(t, last)
				time.Sleep(time.Duration(h.random.IntN(15000)) * time.Millisecond)
			}
			h.running.Wait()
			time.Sleep(5 * time.Second)
			h.lead(t, last) // a stale read may have shown it as the holder
			h.running.Wait()
			for range 2 {
				h.heldBy(t, h.hosts[last].id)
				time.Sleep(time.Minute)
			}
			if t.Failed() {
				t.Fatal(fmt.Sprint("seed ", seed))
			}
		}
	})
}

// TestLeaderTwoAtOnce: of two servers that both lead, one ends up with the address.
func TestLeaderTwoAtOnce(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		s := newShard(t, m, nil)
		hosts := []host{s.host(t), s.host(t)}
		leading := atomic.Int64{}
		leading.Store(-1) // neither has been refused yet
		var both sync.WaitGroup
		for n, h := range hosts {
			ctx := provider.WithGuard(t.Context(), func(context.Context) error {
				if now := leading.Load(); now >= 0 && now != int64(n) {
					return errNotLeader
				}
				return nil
			})
			both.Go(func() {
				if err := h.Assign(ctx); err != nil && !errors.Is(err, errNotLeader) && n == 1 {
					t.Errorf("assign: %v", err)
				}
			})
		}
		time.Sleep(1200 * time.Millisecond)
		leading.Store(1)
		both.Wait()
		s.assign(t, hosts[1])
		time.Sleep(time.Minute)
		s.heldBy(t, hosts[1].id)
	})
}
