package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	reportInterval = 60 * time.Second
	// In connectedWindow each agent reports once. The first settling of it is for what
	// connecting took to be given back.
	connectedWindow = reportInterval
	settling        = 10 * time.Second
)

// measureConnected holds 1,000 and then 5,000 agents.
func measureConnected(ctx context.Context, b *bench) ([]figure, error) {
	few, err := b.connected(ctx, 1000, 110)
	if err != nil {
		return few, err
	}
	many, err := b.connected(ctx, 5000, 400)
	return append(few, many...), err
}

// connected measures one server with n agents that another process holds.
func (b *bench) connected(ctx context.Context, n int, mostRSS float64) ([]figure, error) {
	name := fmt.Sprintf("connected_%d", n)
	s, err := b.memoryServer(ctx, name, shard{Size: n}, fleet.Running)
	if err != nil {
		return nil, err
	}
	defer s.stop(15 * time.Second)
	agents, err := b.start(ctx, "agents", name+"_agents", agentSettings{Kit: s.kit, Interval: reportInterval})
	if err != nil {
		return nil, err
	}
	defer agents.kill()
	ramp, err := agents.await(ctx, "connected", time.Time{}, 3*time.Minute)
	if err != nil {
		return nil, err
	}
	if err := b.allConnected(ctx, s, n); err != nil {
		return nil, err
	}
	if err := s.tell("profile"); err != nil {
		return nil, err
	}
	before, err := s.ask(ctx, "cpu", 10*time.Second)
	if err != nil {
		return nil, err
	}
	peak, err := s.highestRSS(ctx, settling)
	if err != nil {
		return nil, err
	}
	settled, err := s.highestRSS(ctx, connectedWindow-settling)
	if err != nil {
		return nil, err
	}
	after, err := s.ask(ctx, "cpu", 10*time.Second)
	if err != nil {
		return nil, err
	}
	if err := b.allConnected(ctx, s, n); err != nil {
		return nil, err
	}
	memory, err := s.memory(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.ask(ctx, "profiled", 10*time.Second); err != nil {
		return nil, err
	}
	window := after.At.Sub(before.At)
	figures := []figure{
		newFigure(name+"_server_rss", settled, "MiB", n).atMost(mostRSS).
			noted("highest from %s to %s after the last one connected, the store and the fake VMs included; %s", settling, connectedWindow, memory),
		newFigure(name+"_server_rss_peak", max(peak, settled), "MiB", n).noted("highest since the last one connected"),
		newFigure(name+"_server_cpu", (after.Value-before.Value)/window.Seconds()*100, "% of a core", n).atMost(10).
			noted("reports every %s, over %s", reportInterval, window.Round(time.Second)),
		newFigure(name+"_ramp", ramp.Value, "s", n).noted("until all have reported, certificates made on the way"),
	}
	b.judge(ctx, name, figures)
	return figures, nil
}

// allConnected waits until the server itself says so.
func (b *bench) allConnected(ctx context.Context, s *memoryServer, n int) error {
	op, err := s.operator()
	if err != nil {
		return err
	}
	defer op.close()
	var last error
	return until(ctx, fmt.Sprintf("the server counts %d connected agents", n), time.Minute, func() bool {
		var connected int
		connected, last = op.connected(ctx)
		return last == nil && connected == n
	})
}

// operator makes an operator of the server's cluster.
func (s *memoryServer) operator() (*operator, error) {
	k, err := readKit(s.kit)
	if err != nil {
		return nil, err
	}
	ca, err := k.ca()
	if err != nil {
		return nil, err
	}
	return newOperator(ca, k.Addrs.Operator)
}

// highestRSS watches a child's memory for a while.
func (c *child) highestRSS(ctx context.Context, window time.Duration) (highest float64, err error) {
	for end := time.Now().Add(window); time.Now().Before(end); {
		now, err := c.rss(ctx)
		if err != nil {
			return 0, err
		}
		highest = max(highest, now)
		if err := retry.Wait(ctx, time.Second); err != nil {
			return 0, err
		}
	}
	return highest, nil
}
