package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/retry"
)

const (
	frozenRuns = 2
	// frozenTarget is lease + 10 % at the default lease of 30 s.
	frozenTarget = 30 * 1.1 // s
	// thawed is how long a leader that was frozen is watched afterwards.
	thawed = 5 * time.Second
)

// measureFrozen stops leaders without killing them: their connections stay open and silent, as
// behind a broken network. Before one continues, one of its own VMs dies, so that it would have
// something to do.
func measureFrozen(ctx context.Context, b *bench) ([]figure, error) {
	all := make([]takeover, frozenRuns)
	work, workCtx := errgroup.WithContext(ctx)
	for n := range frozenRuns { // in parallel: they only wait
		work.Go(func() (err error) {
			all[n], err = b.freeze(workCtx, fmt.Sprintf("failover_frozen_%d", n+1))
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	var acted spread
	after := 0
	for _, t := range all {
		acted, after = append(acted, t.acted), after+t.after
	}
	figures := []figure{
		newFigure("failover_frozen_max", acted.at(1).Seconds(), "s", frozenRuns).atMost(frozenTarget).
			noted("fastest %.1f s; the target is lease + 10 %%", acted.at(0).Seconds()),
		newFigure("failover_frozen_old_leader_acts", float64(after), "acts", frozenRuns).atMost(0).
			noted("provider calls and durable writes, from the freeze until %s after it went on", thawed),
	}
	b.judge(ctx, "failover_frozen_1", figures)
	return figures, nil
}

func (b *bench) freeze(ctx context.Context, name string) (takeover, error) {
	r, err := b.newRivals(ctx, name, failoverRecords, 0)
	if err != nil {
		return takeover{}, err
	}
	defer r.close()
	began := time.Now()
	t, old, err := r.strike(ctx, syscall.SIGSTOP, now)
	if old != nil {
		defer old.kill()
	}
	if err != nil {
		return t, err
	}
	if err := old.tell("strike"); err != nil {
		return t, err
	}
	if err := old.signal(syscall.SIGCONT); err != nil {
		return t, err
	}
	if _, err := old.await(ctx, "term is over", began, 10*time.Second); err != nil {
		return t, err
	}
	if err := retry.Wait(ctx, thawed); err != nil {
		return t, err
	}
	// Nothing needed an action since the standby started.
	t.after = len(old.since("act", began.Add(following))) + len(old.since("write", began.Add(following)))
	return t, nil
}
