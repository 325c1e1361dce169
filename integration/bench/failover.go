package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

const (
	failoverRecords = 200
	failoverRuns    = 12 // of each kind

	// following is how long a new standby has to find the leader and hold its
	// stream; that takes a few milliseconds here.
	following = 500 * time.Millisecond
)

// rivals are two servers of one shard, each a process, on dev-s3. In the
// standby's world one VM is down, so that it has something to do as soon as it
// leads: what is measured is the time until it does.
type rivals struct {
	bench    *bench
	name     string
	endpoint string
	s3       *child
	leader   *child
	starts   int
}

// takeover is one change of leaders.
type takeover struct {
	ready time.Duration // until the new leader's term had begun
	acted time.Duration // until it called the provider
	after int           // what the old leader did once the new one's term had begun
}

func (b *bench) newRivals(ctx context.Context, name string) (*rivals, error) {
	r := &rivals{bench: b, name: name}
	var err error
	if r.s3, r.endpoint, err = b.devS3(ctx, name, shard{Size: failoverRecords, NoDrain: true}); err != nil {
		return nil, err
	}
	r.leader, err = r.start(ctx)
	if err == nil {
		_, err = r.leader.await(ctx, "act", time.Time{}, time.Minute)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rivals) close() {
	if r.leader != nil {
		r.leader.kill()
	}
	r.s3.stop(5 * time.Second)
}

// start starts one more server on the records as they are now, profiled.
func (r *rivals) start(ctx context.Context) (*child, error) {
	addrs, err := freeEndpoints(ctx)
	if err != nil {
		return nil, err
	}
	cache, err := r.bench.folder("cache")
	if err != nil {
		return nil, err
	}
	r.starts++
	c, err := r.bench.start(ctx, "server", fmt.Sprintf("%s-%d", r.name, r.starts), serverSettings{
		ID: fmt.Sprintf("server-%d", r.starts), CacheDir: cache, Addrs: addrs, Endpoint: r.endpoint,
		Telling: true, Victim: true, Dir: r.bench.temp, Profile: r.name,
	})
	if err != nil {
		return nil, err
	}
	if _, err := c.await(ctx, "serving", time.Time{}, time.Minute); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// strike sends the leader a signal while a standby watches, and waits until that
// one has acted. It returns the old leader, which may still run.
func (r *rivals) strike(ctx context.Context, s syscall.Signal) (t takeover, old *child, err error) {
	if err := retry.Wait(ctx, following); err != nil { // the leader is done with its own takeover
		return t, nil, err
	}
	standby, err := r.start(ctx)
	if err != nil {
		return t, nil, err
	}
	old, r.leader = r.leader, standby
	if err := retry.Wait(ctx, following); err != nil {
		return t, old, err
	}
	struck := time.Now()
	if err := old.signal(s); err != nil {
		return t, old, err
	}
	ready, err := standby.await(ctx, "ready to act", struck, 2*time.Minute)
	if err != nil {
		return t, old, err
	}
	acted, err := standby.await(ctx, "act", struck, time.Minute)
	if err != nil {
		return t, old, err
	}
	if _, err := standby.ask(ctx, "profiled", 10*time.Second); err != nil {
		return t, old, err
	}
	t = takeover{ready: ready.At.Sub(struck), acted: acted.At.Sub(struck)}
	t.after = len(old.since("act", ready.At)) + len(old.since("write", ready.At))
	return t, old, nil
}

// measureFailover hands over and kills, again and again.
func measureFailover(ctx context.Context, b *bench) ([]figure, error) {
	var out []figure
	for _, way := range []struct {
		name   string
		signal syscall.Signal
		target float64 // s
	}{
		{"failover_handover", syscall.SIGTERM, 0.5},
		{"failover_killed", syscall.SIGKILL, 2},
	} {
		figures, err := b.failover(ctx, way.name, way.signal, way.target)
		if err != nil {
			return out, fmt.Errorf("%s: %w", way.name, err)
		}
		out = append(out, figures...)
	}
	return out, nil
}

func (b *bench) failover(ctx context.Context, name string, s syscall.Signal, target float64) ([]figure, error) {
	r, err := b.newRivals(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.close()
	var acted, ready spread
	after := 0
	for range failoverRuns {
		t, old, err := r.strike(ctx, s)
		if old != nil {
			old.stop(15 * time.Second)
		}
		if err != nil {
			return nil, err
		}
		// Whatever the old one wrote into its pipe has been read by now.
		acted, ready, after = append(acted, t.acted), append(ready, t.ready), after+t.after
	}
	figures := acted.p50p99(name, "s", time.Second, target)
	figures[1] = figures[1].noted("until the new leader's create call; its term began after %.0f ms (p50)", milliseconds(ready.median()))
	figures = append(figures, newFigure(name+"_old_leader_acts", float64(after), "acts", failoverRuns).atMost(0))
	b.judge(ctx, name, figures)
	return figures, nil
}
