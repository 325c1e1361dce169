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

	// following is the time in which a new standby finds the leader and opens its stream; here that
	// takes a few milliseconds.
	following = 500 * time.Millisecond

	// idleFor is how long an idle leader has done nothing. It is less than the 10 s between two
	// renewals of an idle leader, of which none comes in between, and more than the 5 s after which
	// it stores its events.
	idleFor = 7 * time.Second
	// slowStore is what each request of the election and the takeover takes with a slow store.
	slowStore = 30 * time.Millisecond
)

// rivals are two servers of one shard, each a process, on dev-s3. For the standby one VM is down,
// so that it has something to do as soon as it leads: the time until then is measured.
type rivals struct {
	bench    *bench
	name     string
	takes    time.Duration // each request of a server to the store, in addition
	endpoint string
	s3       *child
	leader   *child
	starts   int
}

// takeover is one change of leaders.
type takeover struct {
	leads time.Duration // until the new leader's wait was over
	acted time.Duration // until it called the provider
	after int           // what the old leader did once the new one's term had begun
}

func (b *bench) newRivals(ctx context.Context, name string, records int, takes time.Duration) (*rivals, error) {
	r := &rivals{bench: b, name: name, takes: takes}
	var err error
	if r.s3, r.endpoint, err = b.devS3(ctx, name, shard{Size: records, NoDrain: true}); err != nil {
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

// start starts another server on the present records, with profiles.
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
		StoreTakes: r.takes, Telling: true, Victim: true, Dir: r.bench.temp, Profile: r.name,
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

// now changes nothing before a strike.
func now(context.Context, *rivals, *child) error { return nil }

// idle waits until the leader has done nothing for idleFor.
func idle(ctx context.Context, _ *rivals, leader *child) error {
	var last time.Time
	for _, kind := range []string{"act", "write"} {
		for _, e := range leader.since(kind, time.Time{}) {
			if e.At.After(last) {
				last = e.At
			}
		}
	}
	return retry.Wait(ctx, time.Until(last.Add(idleFor)))
}

// busy keeps the leader acting for a second: one of its VMs after another dies.
func busy(ctx context.Context, _ *rivals, leader *child) error {
	for range 4 {
		if err := leader.tell("strike"); err != nil {
			return err
		}
		if err := retry.Wait(ctx, time.Second/4); err != nil {
			return err
		}
	}
	return nil
}

// strike sends the leader a signal while a standby watches, and waits until that
// one has acted. prepare is called right before. It returns the old leader, which may still
// run.
func (r *rivals) strike(
	ctx context.Context, s syscall.Signal, prepare func(context.Context, *rivals, *child) error,
) (t takeover, old *child, err error) {
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
	if err := prepare(ctx, r, old); err != nil {
		return t, old, err
	}
	struck := time.Now()
	if err := old.signal(s); err != nil {
		return t, old, err
	}
	leads, err := standby.await(ctx, "leading", struck, 2*time.Minute)
	if err != nil {
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
	t = takeover{leads: leads.At.Sub(struck), acted: acted.At.Sub(struck)}
	t.after = len(old.since("act", ready.At)) + len(old.since("write", ready.At))
	return t, old, nil
}

// way is one kind of failover.
type way struct {
	name     string
	signal   syscall.Signal
	prepare  func(context.Context, *rivals, *child) error
	takes    time.Duration // of the store
	p50, p99 float64       // targets, s; 0: none
}

// measureFailover hands over and kills, again and again.
func measureFailover(ctx context.Context, b *bench) ([]figure, error) {
	var out []figure
	for _, w := range []way{
		{name: "failover_handover", signal: syscall.SIGTERM, prepare: now, p99: 0.5},
		{name: "failover_killed_idle", signal: syscall.SIGKILL, prepare: idle, p50: 0.04, p99: 0.1},
		{name: "failover_killed_idle_slow_store", signal: syscall.SIGKILL, prepare: idle, takes: slowStore, p50: 0.15, p99: 0.25},
		{name: "failover_killed_acting", signal: syscall.SIGKILL, prepare: busy, p99: 1.2},
	} {
		figures, err := b.failover(ctx, w)
		if err != nil {
			return out, fmt.Errorf("%s: %w", w.name, err)
		}
		out = append(out, figures...)
	}
	return out, nil
}

func (b *bench) failover(ctx context.Context, w way) ([]figure, error) {
	r, err := b.newRivals(ctx, w.name, failoverRecords, w.takes)
	if err != nil {
		return nil, err
	}
	defer r.close()
	var acted, leads spread
	after := 0
	for range failoverRuns {
		t, old, err := r.strike(ctx, w.signal, w.prepare)
		if old != nil {
			old.stop(15 * time.Second)
		}
		if err != nil {
			return nil, err
		}
		// Whatever the old one wrote into its pipe has been read by now.
		acted, leads, after = append(acted, t.acted), append(leads, t.leads), after+t.after
	}
	figures := acted.p50p99(w.name, "s", time.Second, w.p99)
	if w.p50 > 0 {
		figures[0] = figures[0].atMost(w.p50)
	}
	figures[1] = figures[1].noted("until the new leader's create call; it led after %.0f ms (p50)", milliseconds(leads.median()))
	figures = append(figures, newFigure(w.name+"_old_leader_acts", float64(after), "acts", failoverRuns).atMost(0))
	b.judge(ctx, w.name, figures)
	return figures, nil
}
