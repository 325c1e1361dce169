package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
)

// growthAgents receive the files of changesAmongFiles.
const growthAgents = 100

// changesAmongFiles changes a var that one of so many files uses, for each of 100 agents.
func changesAmongFiles(ctx context.Context, b *bench, name string, files int) ([]figure, error) {
	s, err := b.memoryServer(ctx, name+"_server", shard{Size: growthAgents, Files: true, MoreFiles: files - 3}, fleet.Running)
	if err != nil {
		return nil, err
	}
	defer s.stop(15 * time.Second)
	agents, err := b.start(ctx, "agents", name+"_agents", agentSettings{Kit: s.kit, Interval: reportInterval, Files: true})
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
		return nil, err
	}
	if err := s.tell("profile"); err != nil {
		return nil, err
	}
	var began event
	for n := range 1 + pushedRounds { // the first does not count
		if n == 1 {
			if began, err = s.ask(ctx, "cpu", 10*time.Second); err != nil {
				return nil, err
			}
		}
		if err := op.paint(ctx, fmt.Sprintf("color-%d", n)); err != nil {
			return nil, err
		}
		_ = retry.Wait(ctx, time.Second) // so that asking the server, which is its CPU time, too, is rarely repeated
		if hash, err = op.confirmed(ctx, hash); err != nil {
			return nil, err
		}
	}
	ended, err := s.ask(ctx, "cpu", 10*time.Second)
	if err != nil {
		return nil, err
	}
	if _, err := s.ask(ctx, "profiled", 10*time.Second); err != nil {
		return nil, err
	}
	used := (ended.Value - began.Value) * 1000 / (pushedRounds * growthAgents)
	figures := []figure{newFigure(name+"_cpu", used, "ms", pushedRounds*growthAgents).atMost(0.5).noted("the server's, for each agent")}
	b.judge(ctx, name+"_server", figures)
	return figures, nil
}
