package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// population runs an agent for every VM that is created.
type population struct {
	ctx    context.Context
	end    context.CancelFunc
	logger *slog.Logger
	work   sync.WaitGroup

	mu      sync.Mutex
	members map[fleet.InstanceID]*member
	taken   []*member
}

// member is one agent, with a function to stop it.
type member struct {
	*simulated
	stop     context.CancelFunc
	reported bool // locked before the population's lock
}

func newPopulation(ctx context.Context, logger *slog.Logger) *population {
	ctx, end := context.WithCancel(ctx)
	return &population{ctx: ctx, end: end, logger: logger, members: map[fleet.InstanceID]*member{}}
}

// born starts the agent of a new VM.
func (p *population) born(spec provider.Spec) {
	ctx, stop := context.WithCancel(p.ctx)
	m := &member{simulated: &simulated{id: spec.ID}, stop: stop}
	m.observe = func(e agent.Event) {
		if e.Kind == agent.Reported {
			p.mu.Lock()
			m.reported = true
			p.mu.Unlock()
		}
	}
	p.mu.Lock()
	p.members[spec.ID] = m
	p.mu.Unlock()
	p.work.Go(func() {
		if err := m.boot(ctx, spec); err != nil && ctx.Err() == nil {
			p.logger.Error("agent did not start", slog.String("instance", string(spec.ID)), slog.Any("error", err))
		}
	})
}

// reporting counts the agents that have sent a report.
func (p *population) reporting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, m := range p.members {
		if m.reported {
			n++
		}
	}
	return n
}

// take removes and returns any agent that has reported; nil: none has. It may be stopped, and
// otherwise ends with the others.
func (p *population) take() *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, m := range p.members { // the random order of a map is intended
		if m.reported {
			delete(p.members, id)
			p.taken = append(p.taken, m)
			return m
		}
	}
	return nil
}

// close ends all agents at once, including those that were taken, without closing their streams in
// order.
func (p *population) close() {
	p.mu.Lock()
	for _, m := range p.members {
		m.die()
	}
	for _, m := range p.taken {
		m.die()
	}
	p.mu.Unlock()
	p.end()
	p.work.Wait()
}
