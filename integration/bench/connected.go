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
	// Each agent reports once in connectedWindow. In settling, its first part, memory used for
	// connecting is released.
	connectedWindow = reportInterval
	settling        = 10 * time.Second
)

// measureConnected measures with 1,000 and then 5,000 agents.
func measureConnected(ctx context.Context, b *bench) ([]figure, error) {
	few, err := b.connected(ctx, 1000, 95)
	if err != nil {
		return few, err
	}
	many, err := b.connected(ctx, 5000, 375)
	return append(few, many...), err
}

// connected measures one server with n agents in another process.
func (b *bench) connected(ctx context.Context, n int, most float64) ([]figure, error) {
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
	peak, err := s.highestMemory(ctx, settling)
	if err != nil {
		return nil, err
	}
	settled, err := s.highestMemory(ctx, connectedWindow-settling)
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
		newFigure(name+"_server_memory", settled, "MiB", n).atMost(most).
			noted("highest from %s to %s after the last one connected, the store and the fake VMs included; %s", settling, connectedWindow, memory),
		newFigure(name+"_server_memory_peak", max(peak, settled), "MiB", n).noted("highest since the last one connected"),
		newFigure(name+"_server_cpu", (after.Value-before.Value)/window.Seconds()*100, "% of a core", n).atMost(10).
			noted("reports every %s, over %s", reportInterval, window.Round(time.Second)),
		newFigure(name+"_ramp", ramp.Value, "s", n).noted("until all have reported, certificates made on the way"),
	}
	b.judge(ctx, name, figures)
	return figures, nil
}

// allConnected waits until the server reports all agents as connected.
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

// operator creates an operator of the server's cluster.
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

// highestMemory returns the maximum of a child's anonymous memory over a while: without the pages of
// its program, which the machine can drop.
func (c *child) highestMemory(ctx context.Context, window time.Duration) (highest float64, err error) {
	for end := time.Now().Add(window); time.Now().Before(end); {
		now, err := c.anonymous(ctx)
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
