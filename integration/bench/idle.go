package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/object/objecttest"
)

// idleAgents is how many instances an idle shard has here. It costs requests
// only by the page of a listing, of 1,000 records.
const idleAgents = 20

// startIdle lets a leader and its standby idle beside everything else.
func startIdle(ctx context.Context, b *bench) error {
	dir, err := b.folder("idle")
	if err != nil {
		return err
	}
	b.idle, err = b.start(ctx, "idle", "idle", idleSettings{Dir: dir})
	return err
}

// idleReport is what the idle servers asked of their store in a while.
type idleReport struct {
	Window          time.Duration
	Leader, Standby objecttest.Counts
}

// measureIdle collects what was counted so far, at the default intervals.
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
	// A standby asks once in some four minutes, so a few minutes say little of an hour.
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
