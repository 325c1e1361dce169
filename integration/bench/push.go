package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

const (
	pushedAgents = 1000
	pushedRounds = 5
)

// measurePush changes a var of a group of 1,000 and waits until every agent has confirmed the
// changed file.
func measurePush(ctx context.Context, b *bench) ([]figure, error) {
	s, err := b.memoryServer(ctx, "push", shard{Size: pushedAgents, Files: true}, fleet.Running)
	if err != nil {
		return nil, err
	}
	defer s.stop(15 * time.Second)
	agents, err := b.start(ctx, "agents", "push_agents", agentSettings{Kit: s.kit, Interval: reportInterval, Files: true})
	if err != nil {
		return nil, err
	}
	defer agents.kill()
	if _, err := agents.await(ctx, "connected", time.Time{}, 3*time.Minute); err != nil {
		return nil, err
	}
	op, err := s.operator()
	if err != nil {
		return nil, err
	}
	defer op.close()
	hash, err := op.confirmed(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("the first set: %w", err)
	}
	if err := s.tell("profile"); err != nil {
		return nil, err
	}
	var worst time.Duration
	for n := range pushedRounds {
		began := time.Now()
		if err := op.paint(ctx, fmt.Sprintf("color-%d", n)); err != nil {
			return nil, err
		}
		if hash, err = op.confirmed(ctx, hash); err != nil {
			return nil, err
		}
		worst = max(worst, time.Since(began))
	}
	if _, err := s.ask(ctx, "profiled", 10*time.Second); err != nil {
		return nil, err
	}
	figures := []figure{newFigure("file_push_1000", worst.Seconds(), "s", pushedRounds).atMost(5).
		noted("worst; from the change of a var until the server knows that all %d agents have the file", pushedAgents)}
	b.judge(ctx, "push", figures)
	return figures, nil
}

// confirmed waits until all instances report the same config hash, which is not old, and returns
// it.
func (o *operator) confirmed(ctx context.Context, old string) (string, error) {
	var hash string
	var last error
	err := until(ctx, "every agent confirms the same files", time.Minute, func() bool {
		var hashes map[string]int
		hashes, last = o.hashes(ctx)
		for hash = range hashes {
		}
		return last == nil && len(hashes) == 1 && hash != "" && hash != old
	})
	if err != nil && last != nil {
		return "", fmt.Errorf("%w; last: %w", err, last)
	}
	return hash, err
}
