package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/object/objecttest"
)

// idleAgents is the number of instances of an idle shard. They affect the number of requests only
// by the pages of a listing, of 1,000 records each.
const idleAgents = 20

// startIdle starts an idle leader and its standby, which run beside everything else.
func startIdle(ctx context.Context, b *bench) error {
	dir, err := b.folder("idle")
	if err != nil {
		return err
	}
	b.idle, err = b.start(ctx, "idle", "idle", idleSettings{Dir: dir})
	return err
}

// idleReport has the requests of the idle servers to their store in a period.
type idleReport struct {
	Window          time.Duration
	Leader, Standby objecttest.Counts
}

// measureIdle reads the counts so far, at the default intervals.
func measureIdle(ctx context.Context, b *bench) ([]figure, error) {
	if b.idle == nil {
		return nil, fmt.Errorf("it was not started")
	}
	b.say("  counting since the start; at least %s", idleSettle+idleLeast)
	answer, err := b.idle.ask(ctx, "report", idleSettle+idleLeast+time.Minute)
	if err != nil {
		return nil, err
	}
	b.idle.stop(15 * time.Second)
	b.idle = nil
	var r idleReport
	if err := json.Unmarshal([]byte(answer.Text), &r); err != nil {
		return nil, err
	}
	hourly := func(name string, c objecttest.Counts, most float64) figure {
		return newFigure(name, float64(c.Total())*float64(time.Hour)/float64(r.Window), "1/h", int(c.Total())).atMost(most).
			noted("%d get, %d put, %d list, %d delete in %s", c.Get, c.Put, c.List, c.Delete, r.Window)
	}
	figures := []figure{hourly("idle_requests_leader", r.Leader, 400), hourly("idle_requests_standby_window", r.Standby, 20)}
	// A standby sends a request about every four minutes, so a few minutes are not representative.
	figures[1].Target, figures[1].Met = nil, nil
	hour, err := b.start(ctx, "hour", "hour", struct{}{})
	if err != nil {
		return figures, err
	}
	defer hour.stop(time.Second)
	counted, err := hour.await(ctx, "hour", time.Time{}, time.Minute)
	if err != nil {
		return figures, err
	}
	return append(figures, newFigure("idle_requests_standby", counted.Value, "1/h", int(counted.Value)).atMost(20).
		noted("its elector, which is all that asks while it stands by, over a simulated hour")), nil
}
